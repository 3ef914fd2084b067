package resource

import "cmp"

// Limits bounds what decoding accepts. Zero fields mean the defaults.
type Limits struct {
	// FileBytes is the size of a whole stream, checked before anything is parsed. Default 16 MiB.
	FileBytes int
	// DocumentBytes is the size of one document: of its text and of the resource's canonical JSON, which aliases can
	// make larger than the text. Default 1 MiB.
	DocumentBytes int
	// Documents in a stream. Default 100,000.
	Documents int
	// Depth of nesting. Default 64.
	Depth int
	// Nodes is the number of values in a stream with YAML aliases expanded; one document may use a sixteenth of it.
	// Default 4,000,000.
	Nodes int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		FileBytes:     cmp.Or(max(l.FileBytes, 0), 16<<20),
		DocumentBytes: cmp.Or(max(l.DocumentBytes, 0), 1<<20),
		Documents:     cmp.Or(max(l.Documents, 0), 100_000),
		Depth:         cmp.Or(max(l.Depth, 0), 64),
		Nodes:         cmp.Or(max(l.Nodes, 0), 4_000_000),
	}
}
