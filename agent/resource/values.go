package resource

import "time"

// Raw is a part of a document that nearside keeps as it is: canonical JSON of any value.
type Raw struct{ JSON []byte }

// Duration is a time span, written as Go and Kuma write it ("10s", "1h30m").
type Duration struct{ time.Duration }

// IntOrString is a port number or a port name.
type IntOrString struct {
	Int    uint32
	String string // "" when Int is meant
}
