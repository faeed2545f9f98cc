//go:build !race

package apply

const slow = false
