package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"sluice.dev/sluice/cni"
)

// timesFile names the variable that names a file: each call appends a line to it of what
// its time went into. Without it nothing is measured.
const timesFile = "SLUICE_CNI_TIMES"

// times measures one call.
type times struct {
	file  string
	begin time.Time
	kinds map[string]time.Duration
}

// started is when the program was: close enough, as package variables come before main.
var started = time.Now()

// measure starts measuring p, if that is asked for.
func measure(p *cni.Plugin) *times {
	file := os.Getenv(timesFile)
	if file == "" {
		return nil
	}
	t := &times{file: file, begin: started, kinds: map[string]time.Duration{}}
	p.Trace = func(s cni.Span) { t.kinds[s.Kind] += s.Duration }
	return t
}

// write appends the line, in one write, so that those of calls at once do not mix.
func (t *times) write(args *skel.CmdArgs) error {
	if t == nil {
		return nil
	}
	in := map[string]float64{"total": millis(time.Since(t.begin))}
	for kind, d := range t.kinds {
		in[kind] = millis(d)
	}
	line, err := json.Marshal(map[string]any{
		"command": os.Getenv("CNI_COMMAND"), "container": args.ContainerID, "ifname": args.IfName, "ms": in,
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(t.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
