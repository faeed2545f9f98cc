//go:build race

package apply

// slow: the race detector makes everything ten times slower.
const slow = true
