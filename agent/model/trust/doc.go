// Package trust decides which records and manifests of a pool may be in force.
//
// A trust file lists root keys, roles, the keys of operators, the roles of nodes, and revoked keys.
// It is a YAML document with detached signatures of its roots over the exact bytes of the document;
// see [Envelope]. A trust file with a higher version replaces another one if enough roots of the
// latter signed it. An [Enrollment] says what a node may publish.
//
// A [State] is the trust of one node at one time: its trust file, the enrollments, and the config.
// It is immutable and judges entries of the pool. The engine has verified their signatures; this
// package decides what the signers may write. All nodes with the same state decide equally.
package trust
