package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sluice.dev/sluice/lab/oci"
)

// node is a guest of the lab that is a node of the cluster.
type node struct {
	tree string // the work tree, which the guest shares
	dir  string // below it: configuration, logs
	disk string
	nics string
	run  *exec.Cmd // of lab/run, while the guest is on
}

// newNode makes a node's disk, with programs and images on it, and writes its
// configuration to dir, which is in tree.
func newNode(ctx context.Context, tree, root, bin, dir, nics string, kubeconfigs map[string]string) (*node, error) {
	n := &node{tree: tree, dir: dir, disk: filepath.Join(dir, "disk"), nics: nics}
	if err := n.configure(kubeconfigs); err != nil {
		return nil, err
	}
	staged := filepath.Join(dir, "staged")
	defer os.RemoveAll(staged)
	for _, folder := range []string{"bin", "images", "later", "state"} {
		if err := os.MkdirAll(filepath.Join(staged, folder), 0o755); err != nil {
			return nil, err
		}
	}
	busybox := map[string]string{"bin/busybox": filepath.Join(root, "bin/busybox")}
	tools := oci.Image{
		Name: toolsImage, Arch: runtime.GOARCH, Files: busybox, Links: map[string]string{},
		Folders: []string{"bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"}, Env: []string{"PATH=/bin"},
	}
	for _, name := range []string{"sh", "sleep", "env", "cat", "ls", "ip", "wget", "httpd", "sync", "kill"} {
		tools.Links["bin/"+name] = "busybox"
	}
	pause := oci.Image{
		Name: pauseImage, Arch: runtime.GOARCH, Files: busybox,
		Entrypoint: []string{"/bin/busybox", "sleep", "2147483647"},
	}
	for name, i := range map[string]oci.Image{"tools": tools, "pause": pause} {
		archive, err := i.Archive()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(staged, "images", name+".tar"), archive, 0o644); err != nil {
			return nil, err
		}
	}
	copies := [][]string{
		{"cp", filepath.Join(tree, "build/sluice-dev.oci.tar"), filepath.Join(staged, "later", "1.tar")},
		{"cp", filepath.Join(tree, "build/e2e/sluice-next.oci.tar"), filepath.Join(staged, "later", "2.tar")},
		{"cp", filepath.Join(bin, "kube"), filepath.Join(tree, "build/e2e/node"), filepath.Join(staged, "bin")},
		{"ln", "-s", "kube", filepath.Join(staged, "bin/kubelet")},
		{"ln", "-s", "kube", filepath.Join(staged, "bin/kube-proxy")},
		// By the root's own linker, as lab/qemu does: nothing is put on this machine.
		{
			filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", filepath.Join(root, "usr/lib/x86_64-linux-gnu"),
			filepath.Join(root, "usr/sbin/mke2fs"), "-q", "-t", "ext4", "-d", staged, n.disk, "6G",
		},
	}
	for _, argv := range copies {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return n, nil
}

// importing is a shell function that imports each image of a folder once.
const importing = `
import() {
	until ctr version >/dev/null 2>&1; do sleep 0.2; done
	for image in "$1"/*.tar; do
		[ -e "$image" ] || continue
		ctr -n k8s.io images import "$image" && rm "$image"
	done
}
`

// configure writes what lab/e2e/setup reads.
func (n *node) configure(kubeconfigs map[string]string) error {
	files := map[string]string{
		"address": nodeIP + "/24\n",
		"gateway": planeIP + "\n",
		// Pods reach what is outside under the node's address.
		"masquerade.nft": "table ip lab {\n chain out {\n  type nat hook postrouting priority srcnat;\n" +
			"  ip saddr " + podNet + " oifname host0 masquerade\n }\n}\n",
		"pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
			"type": "bridge", "bridge": "pods0", "isGateway": true,
			"ipam": {"type": "host-local", "dataDir": "/var/lib/cni", "ranges": [[{"subnet": "` + podNet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
		// A runtime that starts again ends what does not answer in time.
		"containerd.toml": `version = 2
[timeouts]
  "io.containerd.timeout.shim.cleanup" = "2m"
  "io.containerd.timeout.shim.load" = "2m"
  "io.containerd.timeout.shim.shutdown" = "2m"
  "io.containerd.timeout.task.state" = "2m"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`,
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failSwapOn: false
resolvConf: ""
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
topologyManagerPolicy: single-numa-node
nodeStatusUpdateFrequency: 4s # and so it reports as often, for tests to see
`,
		// Collecting garbage, and statistics that nobody reads, takes a part of the node's
		// time that shows.
		"services/containerd": "#!/bin/bash\nexport GOGC=400\nexec containerd\n",
		// Images come first: a kubelet that finds none has pods wait for minutes.
		"services/kubelet": "#!/bin/bash\n" + importing + `
import /node/images
export GOGC=400
exec /node/bin/kubelet --config=` + n.dir + `/kubelet.yaml --kubeconfig=` + n.dir + `/kubelet.kubeconfig \
	--hostname-override=` + nodeName + ` --node-ip=` + nodeIP + ` --root-dir=/var/lib/kubelet \
	--housekeeping-interval=1m
`,
		// Sluice's, which are large, come while the node becomes ready.
		"services/images": "#!/bin/bash\n" + importing + `
until [ -e /var/lib/kubelet/device-plugins/kubelet.sock ]; do sleep 1; done
import /node/later
exec sleep infinity
`,
		"services/kube-proxy": "#!/bin/bash\nexec /node/bin/kube-proxy --kubeconfig=" + n.dir + "/kube-proxy.kubeconfig" +
			" --hostname-override=" + nodeName + " --proxy-mode=nftables --cluster-cidr=" + podNet +
			" --conntrack-max-per-core=0 --conntrack-min=0\n",
	}
	for name, path := range kubeconfigs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name+".kubeconfig"] = string(text)
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "services"), 0o700); err != nil {
		return err
	}
	for name, text := range files {
		mode := os.FileMode(0o600)
		if strings.HasPrefix(name, "services/") {
			mode = 0o700
		}
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

// on starts the guest and returns when it runs scripts.
func (n *node) on(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(n.dir, "run.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The emulator's counters of time are one, which the kernel does not believe of
	// processors in two sockets: it would ask a device each time that a program asks
	// for the time (arch/x86/kernel/tsc.c, unsynchronized_tsc), and those in Go do so all
	// the time.
	cmd := exec.Command(filepath.Join(n.tree, "lab/run"), "--nics", n.nics, "--limit", "3600", "--mem", "3072",
		"--append", "tsc=reliable transparent_hugepage=never", "--disk", n.disk, "--tap", tapName, "--", "lab/e2e/setup", n.dir)
	cmd.Dir = n.tree
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	n.run = cmd
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		_, err := n.sh(ctx, "true")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node's guest did not come up: %w; its log: %s", err, log.Name())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// sh runs a bash script on the node and answers what it said, on both outputs. A
// status other than 0 is an error.
func (n *node) sh(ctx context.Context, script string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+nodeIP+":9000/run", strings.NewReader(script))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var said struct {
		Output string
		Status int
	}
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
		return "", err
	}
	if said.Status != 0 {
		return said.Output, fmt.Errorf("on the node: status %d: %s\n%s", said.Status, script, said.Output)
	}
	return said.Output, nil
}

// cut takes the node's power away. What the guest's kernel had not yet written is lost.
func (n *node) cut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	go n.sh(ctx, "echo b >/proc/sysrq-trigger") // which has no answer
	return n.ended(125)
}

// off ends the guest; what its kernel complained of is an error.
func (n *node) off() error {
	if n.run == nil {
		return nil
	}
	response, err := http.Post("http://"+nodeIP+":9000/end", "", nil)
	if err == nil {
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	return n.ended(0)
}

// ended waits for lab/run, which says what the guest's kernel complained of.
func (n *node) ended(fine ...int) error {
	run := n.run
	n.run = nil
	done := make(chan error, 1)
	go func() { done <- run.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(2 * time.Minute):
		run.Process.Kill()
		return errors.New("the node's guest did not end")
	}
	code := run.ProcessState.ExitCode()
	for _, f := range fine {
		if code == f {
			return nil
		}
	}
	text, _ := os.ReadFile(filepath.Join(n.dir, "run.log"))
	return fmt.Errorf("the node's guest: %w\n%s", err, bytes.TrimSpace(text[max(0, len(text)-8000):]))
}
