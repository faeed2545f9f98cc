package bench

import (
	"errors"
	"fmt"
)

// Row is one figure of two reports.
type Row struct {
	What  string  `json:"what"`
	Unit  string  `json:"unit"`
	Base  float64 `json:"base"`
	Other float64 `json:"other"`
	Ratio float64 `json:"ratio"` // of Other to Base; 0 where Base is
}

// Compare puts the figures that both reports have beside each other: of streams and
// datagrams with as many connections (and bytes), of round trips with as many bytes. The
// error says that there are none.
func Compare(base, other Report) ([]Row, error) {
	var out []Row
	row := func(unit string, b, o float64, what string, args ...any) {
		r := Row{What: fmt.Sprintf(what, args...), Unit: unit, Base: b, Other: o}
		if b != 0 {
			r.Ratio = o / b
		}
		out = append(out, r)
	}
	for _, b := range base.Streams {
		for _, o := range other.Streams {
			if b.Connections == o.Connections {
				row("Gbit/s", b.Rate()/1e9, o.Rate()/1e9, "streams: %d", b.Connections)
			}
		}
	}
	for _, b := range base.Latency {
		for _, o := range other.Latency {
			if b.Size == o.Size {
				row("messages/s", float64(b.Count)/b.Seconds, float64(o.Count)/o.Seconds, "round trips of %d B", b.Size)
				row("us", float64(b.P50)/1e3, float64(o.P50)/1e3, "round trips of %d B: p50", b.Size)
				row("us", float64(b.P99)/1e3, float64(o.P99)/1e3, "round trips of %d B: p99", b.Size)
			}
		}
	}
	for _, b := range base.Datagram {
		for _, o := range other.Datagram {
			if b.Connections == o.Connections && b.Size == o.Size {
				row("packets/s", float64(b.Received)/b.Seconds, float64(o.Received)/o.Seconds, "datagrams of %d B: %d", b.Size, b.Connections)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("they have nothing in common: want two with the same --connections, --sizes or --datagram")
	}
	return out, nil
}
