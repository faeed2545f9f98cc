// Package offload keeps the ports of Open vSwitch that belong to sluice: one for
// each representor of a VF that a pod has.
//
// What is to be written is decided by a pure function from the port that is
// wanted and the rows that were read; then it goes into the database as one
// transaction, which asks first whether the rows are still those. Rows that are
// not ours, by the mark in external_ids, are never touched.
package offload
