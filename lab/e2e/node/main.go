// Command node keeps a guest running as a node of a cluster. What a service manager
// does there, it does here: every file in the folder SERVICES is a program that is
// started, and started again a second after it ended. What they say goes to
// LOGS/NAME.
//
//	node SERVICES LOGS ADDRESS
//
// On ADDRESS it serves tests, by HTTP:
//
//	POST /run    runs the body as a bash script, answers {"output": ..., "status": ...};
//	             the script ends with the request
//	POST /end    ends this program, and so the guest
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: node SERVICES LOGS ADDRESS")
		os.Exit(2)
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	if err := run(ctx, end, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "node: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, end func(), services, logs, address string) error {
	names, err := os.ReadDir(services)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		go keep(ctx, filepath.Join(services, name.Name()), filepath.Join(logs, name.Name()))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", runScript)
	mux.HandleFunc("POST /end", func(http.ResponseWriter, *http.Request) { end() })
	server := &http.Server{Addr: address, Handler: mux}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// keep runs a service until ctx ends, which leaves the last run of it alone: the
// guest's end is its end.
func keep(ctx context.Context, program, log string) {
	for ctx.Err() == nil {
		err := once(program, log)
		fmt.Fprintf(os.Stderr, "node: %s ended: %v\n", filepath.Base(program), err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func once(program, log string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

func runScript(w http.ResponseWriter, r *http.Request) {
	cmd := exec.CommandContext(r.Context(), "bash", "-euo", "pipefail", "/dev/stdin")
	cmd.Stdin = r.Body
	cmd.WaitDelay = time.Second // what the script left running may hold its output open
	out, err := cmd.CombinedOutput()
	var said strings.Builder
	said.Write(out)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(&said, "node: %v\n", err)
	}
	status := -1
	if cmd.ProcessState != nil {
		status = cmd.ProcessState.ExitCode()
	}
	json.NewEncoder(w).Encode(map[string]any{"output": said.String(), "status": status})
}
