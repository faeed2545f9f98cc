//go:build race

package apply

func init() { slow = true }
