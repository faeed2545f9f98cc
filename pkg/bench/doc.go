// Package bench measures what passes between two ends, one of which serves: streams over
// one and many connections, datagrams, and round trips.
//
// Each measurement is a TCP connection that begins with a line of JSON (Request), which
// is answered by one (Answer). Then bytes follow, as the request says, until the client
// closes its side; at the end of a count the server answers once more. Datagrams go
// beside it, between the same two addresses, each beginning with the token that the
// answer gave; others are not counted, and none is answered.
//
// Nothing here sets a time by which something must be reached: it measures.
package bench

import "time"

// What a server allows.
const (
	MaxSeconds     = 60      // of one measurement
	MaxConnections = 256     // at a time, of all clients
	MaxSize        = 1 << 20 // bytes of a message
)

// Kinds of measurement.
const (
	Stream    = "stream"    // the client sends, the server counts
	Echo      = "echo"      // the server sends each message back
	Datagrams = "datagrams" // the client sends, the server counts
)

// Request is what a connection begins with.
type Request struct {
	Do      string `json:"do"`
	Size    int    `json:"size"`    // bytes of a message
	Seconds int    `json:"seconds"` // that it takes, at most
}

// Answer is what the server says of it, first before it begins.
type Answer struct {
	Error   string `json:"error,omitempty"` // it does not begin
	Port    int    `json:"port,omitempty"`  // where datagrams go
	Token   uint64 `json:"token,omitempty"` // with which each begins, 8 bytes, big endian
	Bytes   uint64 `json:"bytes,omitempty"` // received
	Packets uint64 `json:"packets,omitempty"`
}

const (
	tokenSize = 8
	handshake = 5 * time.Second // for the request and its answer
	grace     = 5 * time.Second // that a measurement may take beyond what it asked for
	silence   = 300 * time.Millisecond
)
