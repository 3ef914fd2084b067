// Package engine replicates opaque records among the members of a cluster. It is a state machine:
// Step takes the time and an event and returns what is to be sent, stored and told. It starts no
// goroutine, opens no socket and reads no clock; chance is passed in. So the same events give the
// same actions, and a seed replays a failure.
//
// There are two classes of entries. A Record has many writers: each change is a Record with a
// Version, and the greatest version wins on every node. What was written without knowledge of the
// winner is kept as a Conflict. A deletion is a Record too, a tombstone. A Manifest has one writer,
// its node: it lists what the node owns, and the newest manifest is all of it.
//
// Merging takes the greatest version of an entry, so messages may be lost, repeated and reordered.
// What they miss is found by comparing digests: the sums of a tree over all entries.
//
// What comes from peers is bounded in size, number and rate. What is not taken is counted with its
// reason.
package engine
