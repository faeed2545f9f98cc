package ovsdb

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// DefaultEndpoint is where a distribution's ovsdb-server listens.
const DefaultEndpoint = "unix:/run/openvswitch/db.sock"

// database is the one that ovs-vswitchd reads its configuration from.
const database = "Open_vSwitch"

// Client is one connection to an ovsdb-server. It may be used by several
// goroutines at once. It does not reconnect: after ErrUnavailable it is spent.
type Client struct {
	endpoint string
	conn     net.Conn
	done     chan struct{} // closed when the reader has ended

	writing sync.Mutex // held while a message is written

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan<- answer
	broken  error // why the connection can no longer be used
}

type answer struct {
	result json.RawMessage
	err    error
}

// Dial opens a stream to host:port. (*tls.Dialer).DialContext is one.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Connect opens a connection to the server at endpoint, in Open vSwitch's
// notation: unix:PATH, tcp:HOST:PORT, or "" for DefaultEndpoint; of several, with commas
// between, the servers of a cluster, to the first that takes it. It ends with
// ctx at the latest. When no server answers, the error is ErrUnavailable and
// names the endpoint. For ssl:HOST:PORT use ConnectVia.
func Connect(ctx context.Context, endpoint string) (*Client, error) {
	return ConnectVia(ctx, endpoint, nil)
}

// ConnectVia is Connect with ssl:HOST:PORT endpoints opened by dial, which
// brings keys and certificates along. It is apart so that a program that never
// leaves the node does not carry a TLS library: 2.3 MB that would be loaded at
// every CNI call.
func ConnectVia(ctx context.Context, endpoint string, dial Dial) (*Client, error) {
	var errs []error
	for one := range strings.SplitSeq(cmp.Or(endpoint, DefaultEndpoint), ",") {
		c, err := connect(ctx, one, dial)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func connect(ctx context.Context, endpoint string, dial Dial) (*Client, error) {
	network, address, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	switch {
	case network == "ssl" && dial == nil:
		return nil, fmt.Errorf("ovsdb endpoint %q needs keys and certificates, which are not configured: use unix:PATH or tcp:HOST:PORT", endpoint)
	case network == "ssl":
		network = "tcp"
	default:
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, unavailable(endpoint, err)
	}
	c := &Client{
		endpoint: endpoint,
		conn:     conn,
		done:     make(chan struct{}),
		waiting:  map[uint64]chan<- answer{},
	}
	go c.read()
	return c, nil
}

func parseEndpoint(s string) (network, address string, err error) {
	network, address, _ = strings.Cut(s, ":")
	switch network {
	case "unix":
		if strings.HasPrefix(address, "/") {
			return network, address, nil
		}
	case "tcp", "ssl":
		if host, port, err := net.SplitHostPort(address); err == nil && host != "" && port != "" {
			return network, address, nil
		}
	}
	return "", "", fmt.Errorf("%q is no ovsdb endpoint: want unix:/PATH, tcp:HOST:PORT or ssl:HOST:PORT, for example %s", s, DefaultEndpoint)
}

// unavailableError keeps both the sentinel and the cause within errors.Is.
type unavailableError struct {
	endpoint string
	cause    error
}

func unavailable(endpoint string, cause error) error {
	return &unavailableError{endpoint, cause}
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("no ovsdb-server at %s: %v: is Open vSwitch running?", e.endpoint, e.cause)
}

func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// Endpoint is where the client is connected to.
func (c *Client) Endpoint() string { return c.endpoint }

// Close ends the connection. Calls that are under way fail.
func (c *Client) Close() error {
	c.fail(net.ErrClosed)
	<-c.done
	return nil
}

// Transact runs ops as one transaction: all of them or none. The error is an
// *OpError when the server refused, ErrUnavailable when the connection broke, or
// ctx's. After the last two the transaction may or may not have been carried
// out: read before trying again.
func (c *Client) Transact(ctx context.Context, ops ...Op) ([]Result, error) {
	return c.TransactIn(ctx, database, ops...)
}

// TransactIn is Transact in another database of the server, such as OVN_Northbound.
func (c *Client) TransactIn(ctx context.Context, database string, ops ...Op) ([]Result, error) {
	params := make([]any, 0, len(ops)+1)
	params = append(params, database)
	for _, o := range ops {
		params = append(params, o)
	}
	raw, err := c.call(ctx, "transact", params)
	if err != nil {
		return nil, err
	}
	// One answer an operation; after the first that failed the rest are null. One
	// more than there are operations tells that the commit failed (RFC 7047,
	// 4.1.3).
	var answers []*struct {
		Result
		Error   string `json:"error"`
		Details string `json:"details"`
	}
	if err := json.Unmarshal(raw, &answers); err != nil {
		return nil, fmt.Errorf("ovsdb-server at %s: transact answered %.200s: %w", c.endpoint, raw, err)
	}
	results := make([]Result, len(ops))
	for i, a := range answers {
		switch {
		case a == nil:
		case a.Error != "":
			e := &OpError{Name: a.Error, Details: a.Details}
			if i < len(ops) {
				e.Op = ops[i].String()
			}
			return nil, e
		case i < len(ops):
			results[i] = a.Result
		}
	}
	if len(answers) < len(ops) {
		return nil, fmt.Errorf("ovsdb-server at %s: %d answers to %d operations", c.endpoint, len(answers), len(ops))
	}
	return results, nil
}

func (c *Client) call(ctx context.Context, method string, params []any) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	got := make(chan answer, 1)
	c.mu.Lock()
	if c.broken != nil {
		err := c.broken
		c.mu.Unlock()
		return nil, unavailable(c.endpoint, err)
	}
	c.last++
	id := c.last
	c.waiting[id] = got
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()

	if err := c.write(ctx, message{Method: method, Params: params, ID: id}); err != nil {
		return nil, err
	}
	select {
	case a := <-got:
		return a.result, a.err
	case <-ctx.Done():
		// Takes a transaction that still waits out of the server's queue (RFC 7047,
		// 4.1.4). A write that fails breaks the connection, which says enough.
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = c.write(bounded, message{Method: "cancel", Params: []any{id}})
		return nil, fmt.Errorf("%s at %s: %w", method, c.endpoint, ctx.Err())
	}
}

// message is a JSON-RPC 1.0 request; a null ID makes it a notification.
type message struct {
	Method string `json:"method"`
	Params []any  `json:"params"`
	ID     any    `json:"id"`
}

// reply is an answer to the server's own requests.
type reply struct {
	Result any `json:"result"`
	Error  any `json:"error"`
	ID     any `json:"id"`
}

// write sends one message whole. Half a message cannot be taken back, so ending
// early breaks the connection.
func (c *Client) write(ctx context.Context, m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err = c.conn.Write(b)
	if !stop() {
		<-ended
		if err == nil { // the message was out before ctx ended: nothing is broken
			err = c.conn.SetWriteDeadline(time.Time{})
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		c.fail(err)
		return unavailable(c.endpoint, err)
	}
	return nil
}

// read hands answers to whoever waits for them and answers the server's probes,
// without which it drops the connection (ovsdb-server(1), inactivity_probe).
func (c *Client) read() {
	defer close(c.done)
	dec := json.NewDecoder(bufio.NewReader(c.conn))
	for {
		var in struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
			ID     json.RawMessage `json:"id"`
		}
		if err := dec.Decode(&in); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the connection was closed")
			}
			c.fail(err)
			return
		}
		if in.Method == "echo" {
			// In a goroutine of its own: a reader that blocks in a write while the
			// server does the same would hold up both for ever.
			go func() {
				bounded, stop := context.WithTimeout(context.Background(), 5*time.Second)
				defer stop()
				_ = c.write(bounded, reply{Result: in.Params, ID: in.ID})
			}()
			continue
		}
		var id uint64
		if in.Method != "" || json.Unmarshal(in.ID, &id) != nil {
			continue
		}
		a := answer{result: in.Result}
		if len(in.Error) > 0 && string(in.Error) != "null" {
			a.err = fmt.Errorf("ovsdb-server at %s: %s", c.endpoint, in.Error)
		}
		c.mu.Lock()
		if got, ok := c.waiting[id]; ok {
			delete(c.waiting, id)
			got <- a
		}
		c.mu.Unlock()
	}
}

// fail ends the connection for the first reason that is given.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return
	}
	c.broken = cause
	_ = c.conn.Close()
	for id, got := range c.waiting {
		delete(c.waiting, id)
		got <- answer{err: unavailable(c.endpoint, cause)}
	}
}
