package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// specAtTop says whether the universal form has the spec's fields beside type, mesh and name.
func specAtTop(s Spec) bool {
	switch s.(type) {
	case *Mesh, *Dataplane, *ExternalService, *ZoneEgress, *ZoneIngress, *LegacyPolicy:
		return true
	}
	return false
}

// Marshal returns the canonical JSON of a resource in the universal format: type, mesh, name, labels, then the spec
// and, where there is one, the status. Equal resources give equal bytes.
func Marshal(r *Resource) ([]byte, error) {
	if r.Spec == nil {
		return nil, fmt.Errorf("marshal %s: the spec is missing", r.Key)
	}
	b, err := marshalValue(envelope{r.Kind, r.Mesh, r.Name, r.Labels})
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	spec, err := marshalValue(r.Spec)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	b = b[:len(b)-1]
	if specAtTop(r.Spec) {
		b = appendFields(b, spec)
	} else {
		b = append(append(b, `,"spec":`...), spec...)
	}
	if h, ok := r.Spec.(statusHolder); ok && *h.status() != nil {
		status, err := marshalValue(*h.status())
		if err != nil {
			return nil, fmt.Errorf("marshal %s: status: %w", r.Key, err)
		}
		b = append(append(b, `,"status":`...), status...)
	}
	return append(b, '}'), nil
}

// envelope is what stands around the spec.
type envelope struct {
	Kind   string            `json:"type"`
	Mesh   string            `json:"mesh,omitempty"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// marshalValue is encoding/json without HTML escapes: a < in a pattern stays readable.
func marshalValue(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// appendFields appends the fields of an object to one that is open and not empty.
func appendFields(b, object []byte) []byte {
	if len(object) <= len("{}") {
		return b
	}
	b = append(b, ',')
	return append(b, object[1:len(object)-1]...)
}
