package store

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ErrClosed is the error of writes to a closed store.
var ErrClosed = errors.New("the store is closed")

// ErrMoved is the error if the store no longer has the content that a batch was decided on.
var ErrMoved = errors.New("the store has changed since the batch was decided")

// Conflict describes a resource that another source owns.
type Conflict struct {
	Key    resource.Key
	Owner  Source // whose it is
	Wanted Source // source of the rejected change
	Commit string // of a published directory that owns it; "" if unknown
}

// String names both sources and the remedy.
func (c Conflict) String() string {
	var remedy string
	switch {
	case c.Owner.Kind == SourceFile && c.Wanted.Kind == SourceAPI:
		remedy = "edit " + c.Owner.Detail + " instead"
	case c.Owner.Kind == SourceFile:
		remedy = "remove it from " + c.Owner.Detail + " first, or rename one of the two"
	case c.Owner.Kind == SourceAPI:
		remedy = "delete it over the API first, or rename one of the two"
	case c.Owner.Kind == SourcePeer:
		remedy = "change it on the node " + c.Owner.Detail + ", or rename one of the two"
	case c.Owner.Kind == SourcePublished:
		remedy = "change it in the files of the directory " + c.Owner.Detail
		if c.Commit != "" {
			remedy += ", which is published at commit " + c.Commit
		}
	case c.Owner.Kind == SourceEnvoy:
		remedy = "stop the Envoy that sends it in its node metadata, or rename one of the two"
	default:
		remedy = "delete it there first, or rename one of the two"
	}
	return fmt.Sprintf("%s belongs to %s and cannot be changed by %s: %s", c.Key, c.Owner, c.Wanted, remedy)
}

// ConflictError lists all resources of a batch that belong to another source.
type ConflictError struct{ Conflicts []Conflict }

// Error returns one conflict per line.
func (e *ConflictError) Error() string {
	lines := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

// ExposedError is the error for a state file that users other than its owner can read or write. It
// may contain private keys.
type ExposedError struct {
	Path string
	Mode os.FileMode
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf(
		"%s is accessible to users other than its owner (mode %#o) and may contain private keys: if no other user read "+
			"or changed it, change its mode to 0600; else also replace all keys that resources contain inline", e.Path, e.Mode)
}

// UnusableError is the error for a state file that exists, and whose content cannot be read, or
// lacks a part that may have had further resources. Nothing was changed.
type UnusableError struct {
	Path   string
	Reason error
}

func (e *UnusableError) Error() string { return fmt.Sprintf("%s cannot be read: %v", e.Path, e.Reason) }

func (e *UnusableError) Unwrap() error { return e.Reason }

// RevisionError is the error for a resource that is not at the revision that the caller expects.
type RevisionError struct {
	Key  resource.Key
	Have uint64 // 0: the resource does not exist
	Want uint64 // 0: it must not exist
}

func (e *RevisionError) Error() string {
	switch {
	case e.Want == 0:
		return fmt.Sprintf("%s exists already, at revision %d", e.Key, e.Have)
	case e.Have == 0:
		return fmt.Sprintf("%s does not exist, but revision %d was expected: read it again and repeat the change",
			e.Key, e.Want)
	}
	return fmt.Sprintf("%s is at revision %d, not %d, because it was changed: read it again and repeat the change",
		e.Key, e.Have, e.Want)
}

// NotFoundError is the error for deleting a resource that does not exist.
type NotFoundError struct{ Key resource.Key }

func (e *NotFoundError) Error() string { return e.Key.String() + " does not exist" }

// DurabilityError is the error for an API write that could not be made durable.
type DurabilityError struct {
	Path string // of the state file
	Err  error  // error of the disk
}

func (e *DurabilityError) Error() string {
	return fmt.Sprintf("the write was rejected because it would not survive a restart of the agent: %v; "+
		"free space for %s or make it writable, and repeat the write", e.Err, e.Path)
}

func (e *DurabilityError) Unwrap() error { return e.Err }

// SealError is the error for an API write that the pool refuses.
type SealError struct{ Err error }

func (e *SealError) Error() string {
	return fmt.Sprintf("the pool of agents refuses the change: %v", e.Err)
}

func (e *SealError) Unwrap() error { return e.Err }
