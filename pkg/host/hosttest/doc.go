// Package hosttest is the contract of package host as tests: one suite that runs
// against every implementation of host.Machine, the simulated one and the kernel
// over whatever cards there are.
//
// A rule that needs something which the machine under test has not is skipped
// with the reason that the fixture gives, and skips are counted. What the machine
// has and the fixture denies is a failure, so nothing is passed over by mistake.
package hosttest
