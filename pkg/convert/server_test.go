package convert

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/sluice/lab/kubetest"
	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// A real API server, with our schemas, takes every document that the golden inputs
// are converted into, whole.
func TestAPIServerTakesWhatIsConverted(t *testing.T) {
	config := kubetest.Start(t, "../../deploy/crds")
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c = client.WithFieldValidation(c, "Strict")
	inputs, err := filepath.Glob("testdata/golden/*/in.*")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, file := range inputs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result := Convert([]Input{{filepath.Base(file), text}}, argsOf(t, filepath.Join(filepath.Dir(file), "args")))
		for _, d := range result.Documents {
			var o client.Object
			switch d := d.(type) {
			case v1alpha1.NICPolicy:
				o = &d
			case v1alpha1.NodeNIC:
				o = &d
			default:
				continue // a network, whose kind is Multus's
			}
			if err := c.Create(t.Context(), o); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			taken++
			if err := c.Delete(t.Context(), o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if taken < 5 {
		t.Errorf("the API server took %d documents: want more to tell", taken)
	}
}
