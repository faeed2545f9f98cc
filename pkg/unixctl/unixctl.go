// Package unixctl asks a running daemon of Open vSwitch, as ovs-appctl(8) does:
// one JSON-RPC request over the daemon's control socket.
package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// DefaultRunDir is where a distribution's daemons keep pid files and sockets.
const DefaultRunDir = "/run/openvswitch"

// largest is what an answer may have, in bytes: a million flows and more.
const largest = 1 << 30

// Socket finds the control socket of a daemon: RUNDIR/NAME.PID.ctl, with the pid
// from RUNDIR/NAME.pid. No pid file, or no such socket, is fs.ErrNotExist: the
// daemon does not run.
func Socket(runDir, daemon string) (string, error) {
	if runDir == "" {
		runDir = DefaultRunDir
	}
	b, err := os.ReadFile(filepath.Join(runDir, daemon+".pid"))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", daemon, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 1 {
		return "", fmt.Errorf("find %s: %s.pid holds %.40q: want a process number", daemon, filepath.Join(runDir, daemon), b)
	}
	path := filepath.Join(runDir, fmt.Sprintf("%s.%d.ctl", daemon, pid))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w", daemon, err)
	}
	return path, nil
}

// Call runs one command of the daemon that listens at socket and gives its
// output. A command that the daemon refuses is an *Error. It ends with ctx at the
// latest.
func Call(ctx context.Context, socket, command string, args ...string) (string, error) {
	out, err := call(ctx, socket, command, args)
	if ended := ctx.Err(); err != nil && ended != nil {
		err = ended
	}
	if err != nil {
		return "", fmt.Errorf("%s at %s: %w", command, socket, err)
	}
	return out, nil
}

func call(ctx context.Context, socket, command string, args []string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", fs.ErrNotExist
		}
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if args == nil {
		args = []string{}
	}
	request := struct {
		ID     int      `json:"id"`
		Method string   `json:"method"`
		Params []string `json:"params"`
	}{1, command, args}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return "", err
	}
	var reply struct {
		Result *string `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, largest)).Decode(&reply); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case reply.Error != nil:
		return "", &Error{Text: strings.TrimSpace(*reply.Error)}
	case reply.Result == nil:
		return "", errors.New("the answer has neither result nor error")
	}
	return *reply.Result, nil
}

// Error is the daemon's refusal of a command, in its words.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }
