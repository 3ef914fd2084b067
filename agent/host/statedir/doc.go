// Package statedir checks the directory paths.state before the agent uses it.
//
// [Items] lists every file of the directory once, with the outcome of each fault. Tests and
// docs/operations.md are compared with the list.
//
// A file that existed and is missing now is recognized by the inventory, which is in the directory
// itself, and a disk that is not mounted by a mark outside. A directory without either is new.
// [Dir.Check] never writes, so a disk can be mounted later.
package statedir
