// Package controller makes of policies what each node is to be, and lets nodes
// change in turn: what pkg/fleet answers, done at the API server.
//
// Its loops share what they have made out, and nothing else: resolve writes each
// NodeNIC's spec, pace lets nodes go and empties them, tally says on each policy
// what has become of it, traffic says on pods and Networks where their flows run, and
// networks brings Networks into OVN. None writes what already is so, and each can be stopped
// and begun anew at any point.
package controller
