package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/disk"
)

// word is kubelet's last word of who has which device, as it lies in the state folder:
// while kubelet is away its pods run on, and whoever starts meanwhile must know.
type word struct {
	Boot string            `json:"boot,omitempty"` // in which it was said: pods end with theirs
	Pods map[string]string `json:"pods"`           // by VF or SF
}

func (n *node) wordPath() string { return filepath.Join(n.dir, "pods.json") }

// patience is how long a kubelet that let somebody wait is not asked again.
const patience = 10 * time.Second

// askKubelet takes kubelet's word of who has which device. While it does not answer its
// last one stands.
func (n *node) askKubelet(ctx context.Context) {
	n.mu.Lock()
	mute := n.podResources == "" || time.Now().Before(n.deaf)
	n.mu.Unlock()
	if mute {
		n.recall()
		return
	}
	begun := time.Now()
	holders, err := deviceplugin.Holders(ctx, n.podResources)
	if err != nil {
		if time.Since(begun) > time.Second {
			n.mu.Lock()
			n.deaf = time.Now().Add(patience)
			n.mu.Unlock()
		}
		n.recall()
		return
	}
	n.hear(holders)
}

// recall takes kubelet's word from the state folder where none was heard yet.
func (n *node) recall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods != nil || n.podResources == "" {
		return
	}
	n.pods = map[string]string{}
	var last word
	if raw, err := os.ReadFile(n.wordPath()); err == nil && json.Unmarshal(raw, &last) == nil && last.Boot == n.machine.Boot {
		n.pods = last.Pods
	}
}

// hear takes up kubelet's word, and keeps it for whoever comes later. One that cannot
// be written down is heard all the same.
func (n *node) hear(holders map[string]deviceplugin.Holder) {
	pods := make(map[string]string, len(holders))
	for device, h := range holders {
		pods[device] = "pod " + h.Namespace + "/" + h.Pod
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = time.Time{}
	if n.pods != nil && maps.Equal(n.pods, pods) {
		return
	}
	n.pods = pods
	raw, err := json.Marshal(word{n.machine.Boot, pods})
	if err == nil {
		_ = disk.Replace(n.wordPath(), append(raw, '\n'), 0o600)
	}
}
