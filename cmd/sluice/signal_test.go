package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that waits where it does not look at its context, here for the rest of
// its document, ends at the second signal.
func TestSecondSignalEnds(t *testing.T) {
	if dir := os.Getenv("SLUICE_TEST_STATE"); dir != "" {
		os.Args = []string{"sluice", "--sim", "mlx5", "--state-dir", dir, "plan", "-f", "-"}
		main()
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondSignalEnds$")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_STATE="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: when all is written, it is being read.
	if _, err := stdin.Write([]byte(strings.Repeat("#\n", 1<<20))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 60 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Logf("signal: %v", err)
		}
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "terminated") {
				t.Errorf("ended with %v, want by the signal", err)
			}
			return
		case <-time.After(time.Second):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	t.Error("it is still there after 60 signals")
}
