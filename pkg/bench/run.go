package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Options say what is measured.
type Options struct {
	Address     string // host:port of a server
	Seconds     int    // of each measurement
	Connections []int  // numbers of streams at a time, and of sockets that send datagrams
	Sizes       []int  // bytes of messages whose round trips are measured
	Datagram    int    // bytes of a datagram; 0: none are sent
}

// Check says what is wrong with options.
func (o Options) Check() error {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return fmt.Errorf("address %q: %w: want HOST:PORT", o.Address, err)
	}
	for _, n := range o.Connections {
		if n < 1 || n > MaxConnections/2 {
			return fmt.Errorf("%d connections: want 1 to %d", n, MaxConnections/2)
		}
	}
	requests := []Request{{Do: Stream, Size: chunk, Seconds: o.Seconds}}
	for _, size := range o.Sizes {
		requests = append(requests, Request{Do: Echo, Size: size, Seconds: o.Seconds})
	}
	if o.Datagram != 0 {
		requests = append(requests, Request{Do: Datagrams, Size: o.Datagram, Seconds: o.Seconds})
		if o.Datagram > maxDatagram {
			return fmt.Errorf("datagrams of %d bytes: want %d at most", o.Datagram, maxDatagram)
		}
	}
	for _, r := range requests {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// Report is what was measured.
type Report struct {
	Address  string  `json:"address"`
	Seconds  int     `json:"seconds"` // asked for, of each line
	Streams  []Flow  `json:"streams"`
	Latency  []Trips `json:"latency"`
	Datagram []Flow  `json:"datagrams"`
}

// Flow is what was sent one way.
type Flow struct {
	Connections int     `json:"connections"`
	Size        int     `json:"size,omitempty"` // bytes of a datagram
	Seconds     float64 `json:"seconds"`        // until the last byte had come
	Sent        uint64  `json:"sent"`           // bytes; of datagrams packets
	Received    uint64  `json:"received"`       // likewise, by the server's count
	Retransmits uint64  `json:"retransmits"`    // segments
	Processor   float64 `json:"processor"`      // seconds, of this end
}

// Rate is bits received in a second.
func (f Flow) Rate() float64 {
	bytes := float64(f.Received)
	if f.Size > 0 {
		bytes *= float64(f.Size)
	}
	return bytes * 8 / f.Seconds
}

// Trips are round trips of a message, one after the other.
type Trips struct {
	Size    int           `json:"size"` // bytes
	Seconds float64       `json:"seconds"`
	Count   int           `json:"count"`
	P50     time.Duration `json:"p50"` // nanoseconds in JSON
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
}

const (
	chunk       = 128 << 10 // bytes of one write of a stream
	maxDatagram = 65507     // of UDP over IPv4
	// maxTrips bounds what is kept of a measurement.
	maxTrips = 4 << 20
)

// Run measures one after the other. The error names what could not be measured.
func Run(ctx context.Context, o Options) (Report, error) {
	out := Report{Address: o.Address, Seconds: o.Seconds}
	if err := o.Check(); err != nil {
		return out, err
	}
	for _, n := range o.Connections {
		f, err := o.stream(ctx, n)
		if err != nil {
			return out, fmt.Errorf("%d streams to %s: %w", n, o.Address, err)
		}
		out.Streams = append(out.Streams, f)
	}
	for _, size := range o.Sizes {
		t, err := o.trips(ctx, size)
		if err != nil {
			return out, fmt.Errorf("round trips of %d bytes to %s: %w", size, o.Address, err)
		}
		out.Latency = append(out.Latency, t)
	}
	for _, n := range o.Connections {
		if o.Datagram == 0 {
			break
		}
		f, err := o.datagrams(ctx, n)
		if err != nil {
			return out, fmt.Errorf("datagrams of %d bytes from %d sockets to %s: %w", o.Datagram, n, o.Address, err)
		}
		out.Datagram = append(out.Datagram, f)
	}
	return out, nil
}

// session is a measurement at its server.
type session struct {
	*net.TCPConn
	in *bufio.Reader
	at Answer
}

// begin asks for a measurement. What it returns ends with ctx.
func (o Options) begin(ctx context.Context, r Request) (*session, error) {
	d := net.Dialer{Timeout: handshake}
	c, err := d.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	s := &session{TCPConn: c.(*net.TCPConn), in: bufio.NewReader(c)}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	_ = s.SetDeadline(time.Now().Add(handshake))
	raw, err := json.Marshal(r)
	if err == nil {
		_, err = s.Write(append(raw, '\n'))
	}
	if err == nil {
		s.at, err = s.answer()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, s.SetDeadline(time.Now().Add(time.Duration(r.Seconds)*time.Second + grace))
}

func (s *session) answer() (a Answer, err error) {
	line, err := s.in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it hung up: it is no sluice bench serve, or this took it too long")
		}
		return a, err
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("it answers %q: it is no sluice bench serve", strings.TrimSpace(string(line)))
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// finish closes this side and answers what the other one has counted.
func (s *session) finish() (Answer, error) {
	if err := s.CloseWrite(); err != nil {
		return Answer{}, err
	}
	return s.answer()
}

// retransmits is how many segments the kernel has sent again.
func (s *session) retransmits() uint64 {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	var n uint64
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = uint64(info.Total_retrans)
		}
	})
	return n
}

func (o Options) stream(ctx context.Context, n int) (Flow, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := Flow{Connections: n}
	var all []*session
	for range n {
		s, err := o.begin(ctx, Request{Do: Stream, Size: chunk, Seconds: o.Seconds})
		if err != nil {
			return out, err
		}
		defer s.Close()
		all = append(all, s)
	}
	used, begun := processor(), time.Now()
	end := begun.Add(time.Duration(o.Seconds) * time.Second)
	sent, got, again := make([]uint64, n), make([]Answer, n), make([]uint64, n)
	var g errgroup.Group
	for i, s := range all {
		g.Go(func() (err error) {
			if sent[i], err = pour(s, end); err != nil {
				return err
			}
			got[i], err = s.finish()
			again[i] = s.retransmits()
			return err
		})
	}
	err := g.Wait()
	out.Seconds, out.Processor = time.Since(begun).Seconds(), processor()-used
	for i := range all {
		out.Sent += sent[i]
		out.Received += got[i].Bytes
		out.Retransmits += again[i]
	}
	return out, err
}

// pour writes until end.
func pour(w io.Writer, end time.Time) (sent uint64, err error) {
	buffer := make([]byte, chunk)
	for time.Now().Before(end) {
		n, err := w.Write(buffer)
		sent += uint64(n)
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func (o Options) trips(ctx context.Context, size int) (Trips, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := Trips{Size: size}
	s, err := o.begin(ctx, Request{Do: Echo, Size: size, Seconds: o.Seconds})
	if err != nil {
		return out, err
	}
	defer s.Close()
	if err := s.SetNoDelay(true); err != nil {
		return out, err
	}
	var took []time.Duration
	message, back := make([]byte, size), make([]byte, size)
	begun := time.Now()
	end := begun.Add(time.Duration(o.Seconds) * time.Second)
	for i := 0; len(took) < maxTrips && time.Now().Before(end); i++ {
		stamp(message, i)
		sent := time.Now()
		if _, err := s.Write(message); err != nil {
			return out, err
		}
		if _, err := io.ReadFull(s.in, back); err != nil {
			return out, err
		}
		took = append(took, time.Since(sent))
		if string(message) != string(back) {
			return out, fmt.Errorf("message %d came back as another", i)
		}
	}
	out.Seconds, out.Count = time.Since(begun).Seconds(), len(took)
	if len(took) == 0 {
		return out, errors.New("no message came back")
	}
	slices.Sort(took)
	out.P50, out.P99, out.Max = at(took, 0.5), at(took, 0.99), took[len(took)-1]
	return out, nil
}

// stamp makes a message another one than the last.
func stamp(message []byte, i int) { copy(message, strconv.Itoa(i)) }

// at is the value that a share of sorted ones does not exceed.
func at(sorted []time.Duration, share float64) time.Duration {
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func (o Options) datagrams(ctx context.Context, n int) (Flow, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := Flow{Connections: n, Size: o.Datagram}
	all, sockets := make([]*session, n), make([]net.Conn, n)
	for i := range n {
		s, err := o.begin(ctx, Request{Do: Datagrams, Size: o.Datagram, Seconds: o.Seconds})
		if err != nil {
			return out, err
		}
		defer s.Close()
		_, remote, err := ends(s.TCPConn)
		if err != nil {
			return out, err
		}
		u, err := net.Dial("udp", net.JoinHostPort(remote.Addr().String(), strconv.Itoa(s.at.Port)))
		if err != nil {
			return out, err
		}
		defer u.Close()
		all[i], sockets[i] = s, u
	}
	used, begun := processor(), time.Now()
	end := begun.Add(time.Duration(o.Seconds) * time.Second)
	sent, got := make([]uint64, n), make([]Answer, n)
	var g errgroup.Group
	for i, s := range all {
		g.Go(func() (err error) {
			sent[i], err = sprinkle(ctx, sockets[i], o.Datagram, s.at.Token, end)
			return err
		})
	}
	err := g.Wait()
	out.Seconds, out.Processor = time.Since(begun).Seconds(), processor()-used
	if err != nil {
		return out, err
	}
	for i, s := range all {
		g.Go(func() (err error) {
			got[i], err = s.finish()
			return err
		})
	}
	err = g.Wait()
	for i := range all {
		out.Sent += sent[i]
		out.Received += got[i].Packets
	}
	return out, err
}

// sprinkle sends datagrams until end.
func sprinkle(ctx context.Context, u net.Conn, size int, token uint64, end time.Time) (sent uint64, err error) {
	message := make([]byte, size)
	binary.BigEndian.PutUint64(message, token)
	for time.Now().Before(end) && ctx.Err() == nil {
		if _, err := u.Write(message); err != nil {
			if errors.Is(err, unix.ENOBUFS) {
				continue // the queue is full: it was not sent
			}
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// processor is the seconds of processor time that this process has used.
func processor() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
