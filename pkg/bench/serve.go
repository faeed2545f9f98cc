package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Serve serves measurements on l until ctx ends, and closes it. A measurement that is
// wrong, or takes too long, ends with its connection alone.
func Serve(ctx context.Context, l *net.TCPListener) error {
	ctx, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	free := make(chan struct{}, MaxConnections)
	for {
		c, err := l.AcceptTCP()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case free <- struct{}{}:
		default:
			serving.Go(func() {
				refuse(c, fmt.Errorf("%d connections are open: want %d at most", MaxConnections, MaxConnections))
			})
			continue
		}
		serving.Go(func() {
			defer func() { <-free }()
			end := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer end()
			serve(c)
		})
	}
}

// refuse says why nothing is measured, and ends.
func refuse(c *net.TCPConn, why error) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(handshake))
	_ = say(c, Answer{Error: why.Error()})
	_ = c.CloseWrite()
	_, _ = io.CopyN(io.Discard, c, 64<<10) // what it has sent; closing over it would be a reset
}

// serve is one connection. Its errors are the client's to see.
func serve(c *net.TCPConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(handshake))
	in := bufio.NewReaderSize(c, longest)
	r, err := read(in)
	if err != nil {
		refuse(c, err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(time.Duration(r.Seconds)*time.Second + grace))
	switch r.Do {
	case Stream:
		err = count(c, in)
	case Echo:
		err = echo(c, in, r.Size)
	default:
		err = datagrams(c, in, r)
	}
	if err != nil {
		refuse(c, err)
	}
}

// longest is how many bytes a request may have.
const longest = 256

func read(in *bufio.Reader) (r Request, err error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return r, fmt.Errorf("a request without an end: want a line of %d bytes at most", longest)
	case err != nil:
		return r, err
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("%q is no request: %w", line, err)
	}
	return r, r.check()
}

func (r Request) check() error {
	least := 1
	switch r.Do {
	case Stream, Echo:
	case Datagrams:
		least = tokenSize
	default:
		return fmt.Errorf("do %q: want %s, %s or %s", r.Do, Stream, Echo, Datagrams)
	}
	if r.Size < least || r.Size > MaxSize {
		return fmt.Errorf("size %d of %s: want %d to %d bytes", r.Size, r.Do, least, MaxSize)
	}
	if r.Seconds < 1 || r.Seconds > MaxSeconds {
		return fmt.Errorf("seconds %d: want 1 to %d", r.Seconds, MaxSeconds)
	}
	return nil
}

func say(c io.Writer, a Answer) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = c.Write(append(raw, '\n'))
	return err
}

func count(c *net.TCPConn, in io.Reader) error {
	if err := say(c, Answer{}); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{in}, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	return say(c, Answer{Bytes: uint64(n)})
}

func echo(c *net.TCPConn, in io.Reader, size int) error {
	if err := errors.Join(c.SetNoDelay(true), say(c, Answer{})); err != nil {
		return err
	}
	message := make([]byte, size)
	for {
		if _, err := io.ReadFull(in, message); err != nil {
			return nil // the client has enough
		}
		if _, err := c.Write(message); err != nil {
			return nil
		}
	}
}

// datagrams takes those of the client alone, until it closes its side of c and none has
// come for a moment.
func datagrams(c *net.TCPConn, in io.Reader, r Request) error {
	local, remote, err := ends(c)
	if err != nil {
		return err
	}
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local.Addr(), 0)))
	if err != nil {
		return err
	}
	defer u.Close()
	_ = u.SetReadBuffer(4 << 20) // as much as is allowed
	var token [tokenSize]byte
	_, _ = rand.Read(token[:]) // it does not fail
	port, err := netip.ParseAddrPort(u.LocalAddr().String())
	if err != nil {
		return err
	}
	if err := say(c, Answer{Port: int(port.Port()), Token: binary.BigEndian.Uint64(token[:])}); err != nil {
		return err
	}
	_ = u.SetReadDeadline(time.Now().Add(time.Duration(r.Seconds)*time.Second + grace))
	var got Answer
	var taking sync.WaitGroup
	taking.Go(func() { got = take(u, remote.Addr(), token[:]) })
	_, err = io.Copy(io.Discard, in)
	// Those on their way are heard of: each puts the end off.
	_ = u.SetReadDeadline(time.Now().Add(silence))
	taking.Wait()
	if err != nil {
		return err
	}
	return say(c, got)
}

func take(u *net.UDPConn, from netip.Addr, token []byte) (out Answer) {
	buffer := make([]byte, 64<<10)
	for {
		n, sender, err := u.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return out
		}
		if sender.Addr().Unmap() != from.Unmap() || n < tokenSize || string(buffer[:tokenSize]) != string(token) {
			continue
		}
		out.Packets++
		out.Bytes += uint64(n)
	}
}

func ends(c *net.TCPConn) (local, remote netip.AddrPort, err error) {
	local, err = netip.ParseAddrPort(c.LocalAddr().String())
	if err == nil {
		remote, err = netip.ParseAddrPort(c.RemoteAddr().String())
	}
	return local, remote, err
}
