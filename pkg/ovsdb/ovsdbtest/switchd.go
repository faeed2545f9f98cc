package ovsdbtest

import (
	"fmt"
	"maps"
	"sync"
)

// switchd does to the rows what ovs-vswitchd does (bridge.c, bridge_reconfigure):
// each interface in a port of a bridge gets an OpenFlow port number, or -1 and an
// error when its netdev cannot be opened; in the same transaction cur_cfg becomes
// next_cfg.
type switchd struct {
	db      *database
	stopped chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	netdevs map[string]bool
	paused  bool
	kick    chan struct{}
	last    int64
}

func startSwitchd(db *database) *switchd {
	s := &switchd{
		db: db, stopped: make(chan struct{}),
		netdevs: map[string]bool{}, kick: make(chan struct{}, 1),
	}
	s.done.Go(s.run)
	return s
}

func (s *switchd) stop() {
	close(s.stopped)
	s.done.Wait()
}

func (s *switchd) run() {
	for {
		s.db.mu.Lock()
		changed := s.db.changed
		s.reconfigure()
		s.db.mu.Unlock()
		select {
		case <-changed:
		case <-s.kick:
		case <-s.stopped:
			return
		}
	}
}

// netdev adds or removes a network interface that can be opened.
func (s *switchd) netdev(name string, there bool) {
	s.mu.Lock()
	s.netdevs[name] = there
	s.mu.Unlock()
	s.wake()
}

func (s *switchd) pause(on bool) {
	s.mu.Lock()
	s.paused = on
	s.mu.Unlock()
	s.wake()
}

func (s *switchd) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// reconfigure runs with db.mu held.
func (s *switchd) reconfigure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return
	}
	t := &transaction{schema: s.db.schema, tables: s.db.tables.clone()}
	set := func(table string, u uid, change row) {
		r := maps.Clone(t.tables[table][u])
		for c, v := range change {
			if !r[c].equal(v) {
				r[c], t.wrote = v, true
			}
		}
		t.tables[table][u] = r
	}
	for _, bridge := range t.tables["Bridge"] {
		for p := range bridge["ports"] {
			for i := range t.tables["Port"][p.(uid)]["interfaces"] {
				u := i.(uid)
				r := t.tables["Interface"][u]
				set("Interface", u, s.open(r))
			}
		}
	}
	for u, r := range t.tables["Open_vSwitch"] {
		set("Open_vSwitch", u, row{"cur_cfg": r["next_cfg"]})
	}
	if t.wrote {
		s.db.tables = t.tables
		close(s.db.changed)
		s.db.changed = make(chan struct{})
	}
}

func (s *switchd) open(r row) row {
	name := ""
	for a := range r["name"] {
		name, _ = a.(string)
	}
	_, internal := r["type"]["internal"]
	if !s.netdevs[name] && !internal {
		return row{
			"ofport": value{int64(-1): nil},
			"error":  value{fmt.Sprintf("could not open network device %s (No such device)", name): nil},
		}
	}
	for a := range r["ofport"] {
		if n, ok := a.(int64); ok && n > 0 {
			return row{"error": value{}}
		}
	}
	s.last++
	return row{"ofport": value{s.last: nil}, "error": value{}}
}
