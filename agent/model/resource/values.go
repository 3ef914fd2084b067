package resource

import (
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/value"
)

// Values of fields.
type (
	Raw         = value.Raw         // any JSON, stored unchanged
	Duration    = value.Duration    // "10s", "1h30m"
	IntOrString = value.IntOrString // a port number or a port name
	Decimal     = value.Decimal     // 62.5, or "62.5"
)

// RawConf is the Conf of a policy without a plugin: a mapping, stored as canonical JSON.
type RawConf struct{ JSON []byte }

// Validate accepts any mapping.
func (c *RawConf) Validate(*Validator) {}

// DecodeNode decodes the value.
func (c *RawConf) DecodeNode(d *strict.Decoder, n *strict.Node) {
	if !d.Is(n, strict.Mapping, "a mapping") {
		return
	}
	c.JSON = n.Canonical()
}

// MarshalJSON returns the mapping; an empty RawConf is {}.
func (c *RawConf) MarshalJSON() ([]byte, error) {
	if len(c.JSON) == 0 {
		return []byte("{}"), nil
	}
	return c.JSON, nil
}

// RawSpec is the Spec of a kind that nearside stores without effect: a mapping, as canonical JSON.
type RawSpec struct{ RawConf }
