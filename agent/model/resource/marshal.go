package resource

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// specAtTop reports whether the universal form has the spec's fields at the top level.
func specAtTop(s Spec) bool {
	switch s.(type) {
	case *Mesh, *Dataplane, *ExternalService, *VirtualOutbound, *ZoneEgress, *ZoneIngress, *LegacyPolicy:
		return true
	}
	return false
}

// Marshal returns the canonical JSON of a resource in the universal format: type, mesh, name,
// labels, then the spec, and the status if there is one. Equal resources yield equal bytes. The
// result contains the secrets of the resource and is for the disk and for digests; use [Shown] for
// output.
func Marshal(r *Resource) ([]byte, error) {
	b, _, err := marshal(r, true)
	return b, err
}

// marshal returns the JSON of a resource, with or without its secrets, and whether it may contain
// any.
func marshal(r *Resource, secrets bool) (_ []byte, held bool, _ error) {
	if r.Spec == nil {
		return nil, false, fmt.Errorf("marshal %s: the spec is missing", r.Key)
	}
	b, err := strict.MarshalJSON(envelope{r.Kind, r.Mesh, r.Name, r.Labels})
	if err != nil {
		return nil, false, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	spec, held, err := marshalSpec(r.Spec, secrets)
	if err != nil {
		return nil, false, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	b = b[:len(b)-1]
	if specAtTop(r.Spec) {
		b = appendFields(b, spec)
	} else {
		b = append(append(b, `,"spec":`...), spec...)
	}
	if h, ok := r.Spec.(statusHolder); ok && *h.status() != nil {
		status, err := strict.MarshalJSON(*h.status())
		if err != nil {
			return nil, false, fmt.Errorf("marshal %s: status: %w", r.Key, err)
		}
		b = append(append(b, `,"status":`...), status...)
	}
	return append(b, '}'), held, nil
}

// marshalSpec returns the JSON of a spec, with or without its secrets, and whether it may contain
// any. Most specs contain none and are marshaled once.
func marshalSpec(s Spec, secrets bool) (b []byte, held bool, err error) {
	b, err = strict.MarshalJSON(s)
	if held = bytes.Contains(b, []byte(secret.Redacted)); err != nil || !secrets || !held {
		return b, held, err
	}
	b, err = strict.MarshalJSON(secret.Reveal(s))
	return b, held, err
}

// envelope holds the fields around the spec.
type envelope struct {
	Kind   string            `json:"type"`
	Mesh   string            `json:"mesh,omitempty"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// appendFields appends the fields of an object to an unfinished object that is not empty.
func appendFields(b, object []byte) []byte {
	if len(object) <= len("{}") {
		return b
	}
	b = append(b, ',')
	return append(b, object[1:len(object)-1]...)
}
