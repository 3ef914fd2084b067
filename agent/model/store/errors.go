package store

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ErrClosed is returned by writes to a closed store.
var ErrClosed = errors.New("the store is closed")

// ErrMoved says that the store has other content than that which a batch was decided on.
var ErrMoved = errors.New("the store has changed since the batch was decided")

// Conflict is one resource that another source owns.
type Conflict struct {
	Key    resource.Key
	Owner  Source // whose it is
	Wanted Source // who tried to change it
}

// String names both sources and the remedy.
func (c Conflict) String() string {
	var remedy string
	switch {
	case c.Owner.Kind == SourceFile && c.Wanted.Kind == SourceAPI:
		remedy = "edit " + c.Owner.Detail + " instead"
	case c.Owner.Kind == SourceFile:
		remedy = "take it out of " + c.Owner.Detail + " first, or give one of the two another name"
	case c.Owner.Kind == SourceAPI:
		remedy = "delete it over the API first, or give one of the two another name"
	case c.Owner.Kind == SourcePeer:
		remedy = "change it on the node " + c.Owner.Detail + ", or give one of the two another name"
	case c.Owner.Kind == SourceEnvoy:
		remedy = "stop the Envoy that brings it in its node metadata, or give one of the two another name"
	default:
		remedy = "delete it there first, or give one of the two another name"
	}
	return fmt.Sprintf("%s belongs to %s and cannot be changed by %s: %s", c.Key, c.Owner, c.Wanted, remedy)
}

// ConflictError lists every resource of a batch that belongs to another source.
type ConflictError struct{ Conflicts []Conflict }

// Error has one conflict per line.
func (e *ConflictError) Error() string {
	lines := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

// ExposedError says that others than its owner can read or write a state file, which may hold
// private keys.
type ExposedError struct {
	Path string
	Mode os.FileMode
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s is open to others than its owner (mode %#o), and may hold private keys: if nobody has read "+
		"or changed it, change its mode to 0600; else replace the keys too that resources hold inline", e.Path, e.Mode)
}

// RevisionError says that a resource is not at the revision that the caller changed from.
type RevisionError struct {
	Key  resource.Key
	Have uint64 // 0: it does not exist
	Want uint64 // 0: it must not exist
}

func (e *RevisionError) Error() string {
	switch {
	case e.Want == 0:
		return fmt.Sprintf("%s exists already, at revision %d", e.Key, e.Have)
	case e.Have == 0:
		return fmt.Sprintf("%s does not exist, but revision %d of it was expected: read it again and repeat the change",
			e.Key, e.Want)
	}
	return fmt.Sprintf("%s is at revision %d, not %d: someone changed it since; read it again and repeat the change",
		e.Key, e.Have, e.Want)
}

// NotFoundError says that a resource to delete does not exist.
type NotFoundError struct{ Key resource.Key }

func (e *NotFoundError) Error() string { return e.Key.String() + " does not exist" }

// DurabilityError says that an API write was refused because it could not be made durable.
type DurabilityError struct {
	Path string // of the state file
	Err  error  // what the disk said
}

func (e *DurabilityError) Error() string {
	return fmt.Sprintf("the write was refused, because it would not survive a restart of the agent: %v; "+
		"free space for %s or make it writable, and repeat the write", e.Err, e.Path)
}

func (e *DurabilityError) Unwrap() error { return e.Err }

// ShareError says that an API write was refused because it could not be shared with other nodes.
type ShareError struct{ Err error }

func (e *ShareError) Error() string {
	return fmt.Sprintf("the change is not in the pool of agents: %v", e.Err)
}

func (e *ShareError) Unwrap() error { return e.Err }
