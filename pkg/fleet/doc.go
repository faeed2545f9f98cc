// Package fleet says what many nodes want and who of them goes next: policies and
// nodes in, for each node its NodeNIC's spec, its conflicts, its turn and the pods
// that must leave. It is pure; pkg/controller asks Kubernetes and does it.
package fleet
