// Command kube is Kubernetes in one program: a link to it, or its first argument,
// says which part it is. One binary, since the parts share most of their code:
// the API server alone is two thirds of the whole build.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: kube etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet [FLAG]..., or a link of such a name"

func main() {
	if part := filepath.Base(os.Args[0]); run(part) {
		return
	}
	if len(os.Args) > 1 {
		os.Args = os.Args[1:]
		if run(os.Args[0]) {
			return
		}
	}
	fmt.Fprintln(os.Stderr, usage)
	os.Exit(2)
}

// run runs the part of that name with the process's arguments, and does not
// return if the part fails; false says that there is none. The parts' commands
// are made here, not in a table of them: making one registers its flags and
// feature gates, which the others would then see.
func run(part string) bool {
	code := 0
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		code = cli.Run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		code = cli.Run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		code = cli.Run(scheduler.NewSchedulerCommand())
	case "kube-proxy":
		code = cli.Run(proxy.NewProxyCommand())
	case "kubelet":
		code = cli.Run(kubelet.NewKubeletCommand(context.Background()))
	default:
		return false
	}
	if code != 0 {
		os.Exit(code)
	}
	return true
}
