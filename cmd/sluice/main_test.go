package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asSluice is the environment variable that makes the test's binary sluice itself,
// with these arguments, one a line.
const asSluice = "SLUICE_TEST_AS_SLUICE"

func TestMain(m *testing.M) {
	if args := os.Getenv(asSluice); args != "" {
		os.Args = append([]string{"sluice"}, strings.Split(args, "\n")...)
		main()
	}
	os.Exit(m.Run())
}

// child is sluice in a process of its own, which can be killed.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	end chan struct{}
}

// spawn starts sluice, until the test ends or kills it. What it says goes to the
// test's output if that fails.
func spawn(t testing.TB, args ...string) *child {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.CommandContext(context.Background(), os.Args[0]), end: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), asSluice+"="+strings.Join(args, "\n"))
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.end)
	}()
	t.Cleanup(func() {
		c.kill()
		log.Close()
		if t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", strings.Join(args, " "), raw)
		}
	})
	return c
}

// signal is for a process that may have ended.
func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// kill ends it as a power cut does.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.end
}
