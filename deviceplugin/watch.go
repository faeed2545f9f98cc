package deviceplugin

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchDirs wakes the endpoints when the kubelet's socket appears or one of ours
// goes, until ctx ends. It only makes them quicker: they look by themselves
// every second, which is what remains while a folder is not there yet, or when
// the machine has no inotify instance to spare.
func (p *Plugin) watchDirs(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		p.config.Log.Warn("device plugin folders are looked at every second only", "error", err)
		return
	}
	defer w.Close()
	again := time.NewTicker(p.timing.poll)
	defer again.Stop()
	for {
		for _, dir := range p.dirs() {
			// A folder that is removed takes its watch with it.
			if !slices.Contains(w.WatchList(), dir) && w.Add(dir) == nil {
				p.wake()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case e := <-w.Events:
			if concerns(e) {
				p.wake()
			}
		case err := <-w.Errors: // events were lost
			p.config.Log.Debug("device plugin folder watch", "error", err)
			p.wake()
		}
	}
}

func concerns(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	switch {
	case e.Has(fsnotify.Create):
		return name == kubeletSocket
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		return strings.HasPrefix(name, "sluice-")
	}
	return false
}

func (p *Plugin) wake() {
	for _, e := range p.current() {
		poke(e.woken)
	}
}
