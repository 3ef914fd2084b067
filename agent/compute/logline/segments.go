package logline

import "github.com/nearside-mesh/nearside/agent/compute/substitution"

// Segments returns the segments of a text format with the key "", or those of each field of a JSON
// format. placeholders are names of operators that are replaced before Envoy reads the format.
func (f *Format) Segments(placeholders ...string) (map[string][]substitution.Segment, error) {
	return f.fields(placeholders)
}

// Segments returns the segments of the formats of the family, like [Format.Segments]. Words in
// which they differ are placeholders; the first one is KUMA_DESTINATION_SERVICE.
func (f *Family) Segments() map[string][]substitution.Segment { return f.fields }
