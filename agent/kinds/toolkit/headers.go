package toolkit

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// HeaderValues are headers that a conf sets or adds.
type HeaderValues struct {
	Set []HeaderValue `json:"set,omitempty"`
	Add []HeaderValue `json:"add,omitempty"`
}

// HeaderValue is the name of a header and its value; several values are separated by commas.
type HeaderValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Check checks names and values; noHost says why the header host is not among them, and value checks a value further.
func (h *HeaderValues) Check(v *resource.Validator, noHost string, value func(*resource.Validator, string)) {
	for _, l := range []struct {
		field string
		list  []HeaderValue
	}{{"set", h.Set}, {"add", h.Add}} {
		seen := make(map[string]bool, len(l.list))
		for i, h := range l.list {
			at := v.Field(l.field).Index(i)
			at.Field("name").HeaderName(h.Name)
			switch {
			case h.Name == "host":
				at.Field("name").Faultf("%s: remove it", noHost)
			case seen[h.Name]:
				at.Field("name").Faultf("the header %s is given twice: give its values in one, separated by commas", h.Name)
			}
			seen[h.Name] = true
			at.Field("value").HeaderValue(h.Value)
			value(at.Field("value"), h.Value)
		}
	}
}

// Options converts the headers; split gives the values of one. The first replaces what is there where the header is set,
// the others are added.
func (h *HeaderValues) Options(split func(string) []string) []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	add := func(list []HeaderValue, how corev3.HeaderValueOption_HeaderAppendAction) {
		for _, h := range list {
			for i, value := range split(h.Value) {
				o := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, Value: value}}
				if i == 0 {
					o.AppendAction = how
				}
				out = append(out, o)
			}
		}
	}
	add(h.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	add(h.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	return out
}
