// Package disktest simulates a disk that loses power, runs full, or fails.
//
// A [Disk] records the changes that a function makes to the files of a directory: writes, syncs,
// and changes of names. From these it computes what a disk may contain after a power loss at any
// point: everything that was synced, and any subset of the later writes. It can also make single
// operations fail.
//
// It needs Linux 5.5 with seccomp user notifications, and no privileges. The kernel stops the
// recorded thread at each operation, so the operations are those of the real program.
package disktest
