package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Where things are. The network is the tests' own (see world).
const (
	planeIP  = "10.98.0.1"
	nodeIP   = "10.98.0.2"
	nodeName = "node-a"
	podNet   = "10.244.1.0/24"
	services = "10.96.0.0/16"
	firstSvc = "10.96.0.1" // the API server's own
)

// users of the API server, with the groups they are in: the name is the token too.
var users = map[string]string{
	"admin":                          "system:masters",
	"system:kube-controller-manager": "",
	"system:kube-scheduler":          "",
	"system:kube-proxy":              "system:node-proxier",
	"system:node:" + nodeName:        "system:nodes",
}

// plane is a control plane on this machine.
type plane struct {
	bin    string // folder of Kubernetes' programs
	dir    string
	parts  map[string]*exec.Cmd
	config *rest.Config // the administrator's
}

// startPlane starts etcd, the API server, the controller manager and the scheduler,
// with their data and logs in dir, and returns when the API server is ready.
func startPlane(ctx context.Context, bin, dir string) (*plane, error) {
	p := &plane{bin: bin, dir: dir, parts: map[string]*exec.Cmd{}}
	p.config = &rest.Config{
		Host:            "https://" + planeIP + ":6443",
		BearerToken:     "admin",
		TLSClientConfig: rest.TLSClientConfig{CAFile: p.path("ca.crt")},
		QPS:             -1, // as many requests as a test likes
	}
	if err := writePKI(dir, net.ParseIP(planeIP), net.ParseIP(firstSvc)); err != nil {
		return nil, err
	}
	var tokens strings.Builder
	for user, groups := range users {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", user, user, user, groups)
		if err := p.writeKubeconfig(user); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(p.path("tokens.csv"), []byte(tokens.String()), 0o600); err != nil {
		return nil, err
	}
	for _, part := range []string{"etcd", "kube-apiserver"} {
		if err := p.start(part); err != nil {
			return nil, err
		}
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	for _, part := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := p.start(part); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plane) path(name string) string { return filepath.Join(p.dir, name) }

// kubeconfig is the path of a user's.
func (p *plane) kubeconfig(user string) string {
	return p.path(strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
}

func (p *plane) writeKubeconfig(user string) error {
	ca, err := os.ReadFile(p.path("ca.crt"))
	if err != nil {
		return err
	}
	c := api.NewConfig()
	c.Clusters["lab"] = &api.Cluster{Server: p.config.Host, CertificateAuthorityData: ca}
	c.AuthInfos[user] = &api.AuthInfo{Token: user}
	c.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: user}
	c.CurrentContext = "lab"
	return clientcmd.WriteToFile(*c, p.kubeconfig(user))
}

func (p *plane) flags(part string) []string {
	switch part {
	case "etcd":
		return []string{
			"--data-dir=" + p.path("etcd"), "--unsafe-no-fsync",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
		}
	case "kube-apiserver":
		return []string{
			"--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=" + planeIP, "--advertise-address=" + planeIP, "--secure-port=6443",
			"--tls-cert-file=" + p.path("server.crt"), "--tls-private-key-file=" + p.path("server.key"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-signing-key-file=" + p.path("sa.key"), "--service-account-key-file=" + p.path("sa.pub"),
			"--token-auth-file=" + p.path("tokens.csv"), "--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction", "--allow-privileged",
			"--service-cluster-ip-range=" + services,
			"--kubelet-preferred-address-types=InternalIP", // names are not known here
		}
	case "kube-controller-manager":
		return []string{
			"--kubeconfig=" + p.kubeconfig("system:kube-controller-manager"), "--use-service-account-credentials",
			"--service-account-private-key-file=" + p.path("sa.key"), "--root-ca-file=" + p.path("ca.crt"),
			"--leader-elect=false", "--bind-address=127.0.0.1",
		}
	case "kube-scheduler":
		return []string{
			"--kubeconfig=" + p.kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1",
		}
	}
	panic("no part " + part)
}

func (p *plane) start(part string) error {
	log, err := os.OpenFile(p.path(part+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(p.bin, part), p.flags(part)...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p.parts[part] = cmd
	return nil
}

// ready waits until the API server says it is, for at most two minutes.
func (p *plane) ready(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(p.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w; its log: %s", err, p.path("kube-apiserver.log"))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// kill ends a part at once. It can be started again.
func (p *plane) kill(part string) error {
	cmd := p.parts[part]
	delete(p.parts, part)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := cmd.Process.Wait()
	return err
}

func (p *plane) stop() {
	for part := range p.parts {
		_ = p.kill(part) // it may have ended by itself
	}
}
