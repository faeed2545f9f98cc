package kubetest

import (
	"testing"

	"k8s.io/client-go/discovery"
)

func TestAPIServerAnswers(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(Start(t))
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major != "1" || version.Minor == "" {
		t.Errorf("the API server is of version %+v, want 1.x as lab/kube/go.mod has it", version)
	}
}
