package disktest

import "fmt"

// Kind is the kind of an operation.
type Kind int

// Kinds of operations.
const (
	Write   Kind = iota // of Data at Offset
	Resize              // to Offset bytes
	Sync                // of a file
	Create              // of an empty file, if it does not exist; with Empty, it loses its content
	Rename              // of Path to To
	Link                // of Path, with the new name To
	Remove              // of a name
	SyncDir             // of the directory
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"write", "resize", "sync", "create", "rename", "link", "remove", "sync of the directory"}[k]
}

// Operation is a change of a file or a name.
type Operation struct {
	Kind   Kind
	Path   string // name in the directory
	To     string // for Rename and Link
	Offset int64
	Data   []byte
	Empty  bool // for Create
	Failed bool // the program got an error
}

// String describes the operation.
func (o Operation) String() string {
	s := fmt.Sprintf("%s %s%s at %d, %d bytes", o.Kind, o.Path, o.To, o.Offset, len(o.Data))
	if o.Failed {
		s += " (failed)"
	}
	return s
}
