package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// specAtTop says whether the universal form has the spec's fields beside type, mesh and name.
func specAtTop(s Spec) bool {
	switch s.(type) {
	case *Mesh, *Dataplane, *ExternalService, *VirtualOutbound, *ZoneEgress, *ZoneIngress, *LegacyPolicy:
		return true
	}
	return false
}

// Marshal returns the canonical JSON of a resource in the universal format: type, mesh, name,
// labels, then the spec and, where there is one, the status. Equal resources give equal bytes. It
// holds the secrets of the resource and is for the disk and for digests; what is shown to anybody
// is [Shown].
func Marshal(r *Resource) ([]byte, error) {
	b, _, err := marshal(r, true)
	return b, err
}

// marshal returns the JSON of a resource, with its secrets or without, and whether it may hold any.
func marshal(r *Resource, secrets bool) (_ []byte, secret bool, _ error) {
	if r.Spec == nil {
		return nil, false, fmt.Errorf("marshal %s: the spec is missing", r.Key)
	}
	b, err := marshalValue(envelope{r.Kind, r.Mesh, r.Name, r.Labels})
	if err != nil {
		return nil, false, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	spec, secret, err := marshalSpec(r.Spec, secrets)
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
		status, err := marshalValue(*h.status())
		if err != nil {
			return nil, false, fmt.Errorf("marshal %s: status: %w", r.Key, err)
		}
		b = append(append(b, `,"status":`...), status...)
	}
	return append(b, '}'), secret, nil
}

// marshalSpec returns the JSON of a spec, with its secrets or without, and whether it may hold any.
// Most hold none, and are written once.
func marshalSpec(s Spec, secrets bool) (b []byte, secret bool, err error) {
	b, err = marshalValue(s)
	if secret = bytes.Contains(b, []byte(Redacted)); err != nil || !secrets || !secret {
		return b, secret, err
	}
	b, err = marshalValue(open(reflect.ValueOf(s)).Interface())
	return b, secret, err
}

// envelope is what stands around the spec.
type envelope struct {
	Kind   string            `json:"type"`
	Mesh   string            `json:"mesh,omitempty"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// MarshalValue is encoding/json as [Marshal] uses it, for types that write a part of a conf
// themselves.
func MarshalValue(v any) ([]byte, error) { return marshalValue(v) }

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
