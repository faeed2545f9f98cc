// Package kubetest gives tests a real API server.
package kubetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Start starts an etcd and an API server that serves the custom resource
// definitions in the files or folders crds, for as long as the test runs, and
// answers how it is reached, as an administrator. It takes some six seconds, so
// tests that do not disturb each other better share one.
//
// The programs are those of $KUBEBUILDER_ASSETS, which lab/test sets; else those
// that lab/kube/get has built. Without either the test is skipped, and says how to
// come by them: they take ten minutes to build.
func Start(t testing.TB, crds ...string) *rest.Config {
	t.Helper()
	assets, err := assets()
	if err != nil {
		t.Skipf("SKIPPED: no API server to test against: %v", err)
	}
	server := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     crds,
		ErrorIfCRDPathMissing: true,
		// On a machine that is busy it takes more than envtest's 20 s.
		ControlPlaneStartTimeout: 2 * time.Minute,
	}
	config, err := server.Start()
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	if err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	return config
}

// assets is the folder with etcd and kube-apiserver in it.
func assets() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	tree, err := root()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(filepath.Join(tree, "lab/kube/get"), "--built").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "", errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// root is the folder of this work tree. Tests run in the folders of their packages.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "lab/kube/get")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not within the work tree, which has lab/kube/get")
		}
	}
	return "", err
}
