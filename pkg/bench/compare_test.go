package bench

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	base := Report{
		Streams:  []Flow{{Connections: 1, Seconds: 2, Received: 2e9}, {Connections: 8, Seconds: 2, Received: 4e9}},
		Latency:  []Trips{{Size: 64, Seconds: 2, Count: 2000, P50: 10 * time.Microsecond, P99: 0}},
		Datagram: []Flow{{Connections: 1, Size: 64, Seconds: 2, Received: 100}, {Connections: 8, Size: 1024, Seconds: 2, Received: 100}},
	}
	other := Report{
		Streams:  []Flow{{Connections: 8, Seconds: 1, Received: 1e9}, {Connections: 64, Seconds: 1, Received: 1e9}},
		Latency:  []Trips{{Size: 64, Seconds: 1, Count: 500, P50: 25 * time.Microsecond, P99: 50 * time.Microsecond}},
		Datagram: []Flow{{Connections: 1, Size: 64, Seconds: 1, Received: 10}, {Connections: 8, Size: 64, Seconds: 1, Received: 10}},
	}
	want := []Row{
		{"streams: 8", "Gbit/s", 16, 8, 0.5},
		{"round trips of 64 B", "messages/s", 1000, 500, 0.5},
		{"round trips of 64 B: p50", "us", 10, 25, 2.5},
		{"round trips of 64 B: p99", "us", 0, 50, 0},
		{"datagrams of 64 B: 1", "packets/s", 50, 10, 0.2},
	}
	got, err := Compare(base, other)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
	if _, err := Compare(base, Report{Streams: []Flow{{Connections: 2, Seconds: 1}}}); err == nil || !strings.Contains(err.Error(), "nothing in common") {
		t.Error(err)
	}
}
