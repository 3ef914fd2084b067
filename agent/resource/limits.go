package resource

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
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.FileBytes, 16<<20)
	def(&l.DocumentBytes, 1<<20)
	def(&l.Documents, 100_000)
	def(&l.Depth, 64)
	def(&l.Nodes, 4_000_000)
	return l
}
