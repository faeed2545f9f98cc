// Package convert turns what people have for the SR-IOV network operator and the
// SR-IOV network device plugin into documents of sluice, and says line by line what
// does not mean the same any more. It is pure.
//
//	result := Convert([]Input{{Name: "policies.yaml", Text: raw}}, Options{Bridge: "br-pods"})
//	result.Documents // what to apply; none if anything was refused
//	result.Notes     // what changed in meaning, and what was refused
//
// Nothing is guessed: a key that is not known, a value of another type, a selector
// that chooses nothing in particular, and everything that sluice cannot do is
// refused by name. A set of documents is converted whole or not at all, since what
// is left out of one pool would fall to the next.
package convert
