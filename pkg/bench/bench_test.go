package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func serving(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err) // a machine without IPv6
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l.(*net.TCPListener)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// What was sent has arrived, by the other end's count; of datagrams no more than were
// sent. Over both families.
func TestRun(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			to := serving(t, "tcp", address)
			r, err := Run(t.Context(), Options{Address: to, Seconds: 1, Connections: []int{1, 5}, Sizes: []int{1, 100_000}, Datagram: 100})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Streams) != 2 || len(r.Latency) != 2 || len(r.Datagram) != 2 || r.Datagram[1].Connections != 5 {
				t.Fatalf("%+v", r)
			}
			for _, f := range r.Streams {
				if f.Sent == 0 || f.Sent != f.Received || f.Seconds < 1 || f.Rate() != float64(f.Received)*8/f.Seconds {
					t.Errorf("%+v", f)
				}
			}
			for _, l := range r.Latency {
				if l.Count == 0 || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max {
					t.Errorf("%+v", l)
				}
			}
			for _, d := range r.Datagram {
				if d.Received == 0 || d.Received > d.Sent || d.Rate() != float64(d.Received)*800/d.Seconds {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

// ask opens a connection, sends text and answers the line that comes back.
func ask(t *testing.T, to, text string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	c, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatalf("%q: %v", text, err)
	}
	return c, in, line
}

func TestWrongRequestsAreRefused(t *testing.T) {
	to := serving(t, "tcp", "127.0.0.1:0")
	for text, want := range map[string]string{
		"GET / HTTP/1.1\n": "is no request",
		`{"do": "flood", "size": 1, "seconds": 1}` + "\n":       `do \"flood\": want stream, echo or datagrams`,
		`{"do": "echo", "size": 0, "seconds": 1}` + "\n":        "size 0 of echo: want 1 to 1048576 bytes",
		`{"do": "echo", "size": 1048577, "seconds": 1}` + "\n":  "want 1 to 1048576 bytes",
		`{"do": "datagrams", "size": 7, "seconds": 1}` + "\n":   "want 8 to",
		`{"do": "stream", "size": 1, "seconds": 61}` + "\n":     "seconds 61: want 1 to 60",
		`{"do": "stream", "size": 1}` + "\n":                    "seconds 0: want 1 to 60",
		`{"do": "` + strings.Repeat("x", 300) + `", "size": 1}`: "a request without an end", // a line that is too long
	} {
		if _, _, line := ask(t, to, text); !strings.Contains(line, want) {
			t.Errorf("%q: %q: want %q", text, line, want)
		}
	}
	for _, o := range []Options{
		{Address: "host", Seconds: 1},
		{Address: to, Seconds: 0, Connections: []int{1}},
		{Address: to, Seconds: 1, Connections: []int{0}},
		{Address: to, Seconds: 1, Connections: []int{1000}},
		{Address: to, Seconds: 1, Sizes: []int{-1}},
		{Address: to, Seconds: 1, Datagram: 70000},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A server that is something else, or nobody, is told from one.
func TestWrongServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail\n")
			_ = c.Close()
		}
	}()
	o := Options{Address: l.Addr().String(), Seconds: 1, Connections: []int{1}}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "1 streams to "+o.Address) {
		t.Errorf("another's server: %v", err)
	}
	l.Close()
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody: %v", err)
	}
}

// Datagrams of others than the client, by token, are not counted, and none is answered.
func TestStrangersDatagrams(t *testing.T) {
	to := serving(t, "tcp", "127.0.0.1:0")
	c, in, line := ask(t, to, `{"do": "datagrams", "size": 8, "seconds": 5}`+"\n")
	var a Answer
	if err := json.Unmarshal([]byte(line), &a); err != nil || a.Port == 0 || a.Token == 0 {
		t.Fatalf("%q, %v", line, err)
	}
	u, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", a.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for range 10 {
		if _, err := u.Write([]byte("strangers")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	line, err = in.ReadString('\n')
	a = Answer{}
	if err != nil || json.Unmarshal([]byte(line), &a) != nil || a.Packets != 0 {
		t.Errorf("%q, %v: want none counted", line, err)
	}
}

// More connections than are allowed are told so; those that there are go on.
func TestTooMany(t *testing.T) {
	to := serving(t, "tcp", "127.0.0.1:0")
	const request = `{"do": "echo", "size": 4, "seconds": 30}` + "\n"
	var first net.Conn
	for i := range MaxConnections {
		c, _, line := ask(t, to, request)
		if strings.Contains(line, "error") {
			t.Fatalf("connection %d: %s", i, line)
		}
		if i == 0 {
			first = c
		}
	}
	if _, _, line := ask(t, to, request); !strings.Contains(line, "connections are open") {
		t.Errorf("one too many: %q", line)
	}
	back := make([]byte, 4)
	if _, err := first.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first, back); err != nil || string(back) != "ping" {
		t.Errorf("the first: %q, %v", back, err)
	}
}
