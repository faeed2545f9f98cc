package ovsdbtest

import (
	"encoding/json"
	"net"
	"sync"
)

// server answers OVSDB's JSON-RPC on a listener.
type server struct {
	db       *database
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	// drop, when set, is asked before each transaction; true ends the connection
	// instead of an answer.
	drop func(ops int) bool
	// late makes drop end the connection after the transaction was carried out.
	late bool
}

func serve(l net.Listener, db *database) *server {
	s := &server{db: db, listener: l, conns: map[net.Conn]bool{}}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.done.Go(func() { s.session(c) })
		}
	})
	return s
}

// stop ends listener and connections and waits for what they still do.
func (s *server) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

type request struct {
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
	ID     json.RawMessage   `json:"id"`
}

type response struct {
	Result any             `json:"result"`
	Error  any             `json:"error"`
	ID     json.RawMessage `json:"id"`
}

func (s *server) session(c net.Conn) {
	gone := make(chan struct{})
	var writing sync.Mutex
	var running sync.WaitGroup
	cancels := map[string]chan struct{}{} // of transactions, by id
	var cancelling sync.Mutex
	defer running.Wait()
	defer close(gone)
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()

	send := func(m any) {
		writing.Lock()
		defer writing.Unlock()
		_ = json.NewEncoder(c).Encode(m) // the reader notices a broken connection
	}
	// A real server probes its clients; one that does not answer is dropped.
	send(request{Method: "echo", Params: []json.RawMessage{}, ID: json.RawMessage(`"echo"`)})
	dec := json.NewDecoder(c)
	for {
		var r request
		if dec.Decode(&r) != nil {
			return
		}
		switch r.Method {
		case "transact":
			if len(r.Params) == 0 || string(r.Params[0]) != `"`+s.db.name+`"` {
				send(response{Error: map[string]string{"error": "unknown database"}, ID: r.ID})
				continue
			}
			s.mu.Lock()
			drop, late := s.drop != nil && s.drop(len(r.Params)-1), s.late
			s.mu.Unlock()
			if drop && !late {
				return
			}
			cancel := make(chan struct{})
			cancelling.Lock()
			cancels[string(r.ID)] = cancel
			cancelling.Unlock()
			running.Go(func() {
				either := make(chan struct{})
				stopped := make(chan struct{})
				running.Go(func() {
					select {
					case <-cancel:
						close(either)
					case <-gone:
						close(either)
					case <-stopped:
					}
				})
				result := s.db.transact(r.Params[1:], either)
				close(stopped)
				if drop {
					_ = c.Close()
					return
				}
				send(response{Result: result, ID: r.ID})
			})
		case "cancel":
			if len(r.Params) == 1 {
				cancelling.Lock()
				if cancel, ok := cancels[string(r.Params[0])]; ok {
					close(cancel)
					delete(cancels, string(r.Params[0]))
				}
				cancelling.Unlock()
			}
		case "echo":
			send(response{Result: r.Params, ID: r.ID})
		case "": // the answer to our echo
		default:
			send(response{Error: "unknown method", ID: r.ID})
		}
	}
}
