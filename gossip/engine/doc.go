// Package engine replicates opaque records among the members of a cluster. It is a state machine:
// Step takes the time and an event, and returns messages to send, data to store, and changes to
// report. It starts no goroutines, opens no sockets, and does not read a clock; randomness is an
// input. The same events always produce the same actions, so a seed replays a failure.
//
// There are two classes of entries. A Record can be written by every node. Each change is a Record
// with a Version, and the greatest version wins on every node. A version that loses to a concurrent
// write is stored as a Conflict. A deletion is a Record too: a tombstone. A Manifest is written
// only by its node, or by the node that publishes a directory. It lists the items of its owner, and
// a new manifest replaces the previous one completely. A large owner has several manifests, its
// shards.
//
// Merging takes the greatest version of an entry, so messages may be lost, repeated, or reordered.
// Nodes find missing entries by comparing digests: the sums of a tree over all entries.
//
// Data from peers is limited in size, number, and rate. Rejected data is counted by reason.
package engine
