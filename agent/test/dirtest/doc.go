// Package dirtest tests that an agent keeps the lines of all its logs when their directories are
// removed, moved, hidden by a mount, or made writable for others.
package dirtest
