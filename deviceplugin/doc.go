// Package deviceplugin offers VFs, SFs and RDMA devices to Kubernetes: the kubelet's
// device plugin API, v1beta1.
//
// It has two halves. The pure one says what a pool offers and what a container
// gets, from an observation and nothing else:
//
//	devices, problems := List(pool, node)   // what the kubelet is told
//	grant, err := Allocate(pool, node, ids) // environment, device files, what is told of them
//
// Pools are nic.Pool, which pkg/policy makes of what people wrote. The other half is
// the server around it, one gRPC server and socket a pool:
//
//	plugin, err := New(Config{
//		Pools: pools,
//		Look:  look, // host.Look of a machine, and whose its VFs are
//		Log:   log,
//	})
//	err = plugin.Run(ctx, changes) // until ctx ends
//
// The plugin follows changes (host.Watch): what one names is read at once, and all is
// looked at some time after, or when whoever has changed something calls Look. It tells
// the kubelet only if the list is another one. Pools become others with SetPools.
//
// # What is offered
//
// A device is a VF, its ID the PCI address, or an SF, or one of the shares of an HCA.
// It is listed for as long as the function exists, whoever has it: a VF in a pod's
// network namespace, or held by sluice's own record or the kubelet's word, is in use
// and not gone, so a restart does not change a node's capacity. When it is healthy
// docs/device-plugin.md says.
//
// Allocate observes anew each time. It refuses a VF that is not healthy; it does
// not refuse one that is still in use, because the kubelet may hand on a VF
// before the last pod's CNI DEL has run: a refusal here fails the new pod for
// good, while its CNI ADD is retried until the VF is free.
//
// # How it keeps a place with the kubelet
//
// Everything is judged by state, never by events alone: a pool has its place
// when its socket is there, the kubelet's socket is the one it registered with,
// and a ListAndWatch stream is open. If any of these does not hold, the server
// is taken down and a new one registers, under a new socket name. The new name
// matters: a kubelet (1.37, devicemanager, PluginConnected) that has not yet
// noticed the end of the old connection refuses a second one from the same path
// and then never takes that path again. For the same reason it waits a moment
// between the two: kubelets up to 1.36 take the end of an old stream for that of
// the new one.
package deviceplugin
