// Package nodeapi is a node's side of the API server: it hears what is wanted of
// the node, shows the plan before anything is done, waits for its turn, and says
// what became of it.
//
// Nothing rests on the API server being there. What was last taken up is kept by
// the engine, and is what an agent starts with; what is remembered of a change that
// is under way is in the NodeNIC and on the node's disk, so that controller and
// agent may both be started anew at any point.
package nodeapi
