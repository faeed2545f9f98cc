// Package e2e holds the end-to-end tests: a real Kubernetes whose only node is a
// guest of the lab with a real kubelet, container runtime and the lab's NIC in it.
// `make e2e` runs them, in a network namespace and a process namespace of their own.
package e2e
