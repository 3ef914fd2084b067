package substitution

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// coalesce is the operator whose argument lists other operators. Envoy 1.37 to 1.40 crash if the
// argument is JSON but neither an object nor a list.
const coalesce = "COALESCE"

// chainMetadata is the kind of METADATA that Envoy 1.36 lacks.
const chainMetadata = "LISTENER_FILTER_CHAIN"

// Feature is an operator, or a part of one, that not all supported Envoys have.
type Feature struct {
	Name  string // "SPAN_ID", "DYNAMIC_METADATA(length)"
	Since uint32 // minor version of the first Envoy 1.x that has it
}

// Features returns all features, sorted by operator.
func Features() []Feature {
	var out []Feature
	for i := range operators {
		out = append(out, operators[i].features()...)
	}
	return out
}

func (o *operator) features() (out []Feature) {
	if o.since > 0 {
		out = append(out, Feature{o.name, o.since})
	}
	if o.argSince > 0 {
		out = append(out, Feature{o.name + "(argument)", o.argSince})
	}
	if o.lengthSince > 0 {
		out = append(out, Feature{o.name + "(length)", o.lengthSince})
	}
	if o.name == "METADATA" {
		out = append(out, Feature{"METADATA(" + chainMetadata + ")", 37})
	}
	return out
}

// Newer returns the features of a segment that not all supported Envoys have.
func (s *Segment) Newer() (out []Feature) {
	op, ok := findOperator(s.Operator)
	if !ok || s.Placeholder {
		return nil
	}
	for _, f := range op.features() {
		switch kind, _, _ := strings.Cut(s.Arg, ":"); {
		case f.Name == op.name, f.Since == op.argSince && s.Arg != "", f.Since == op.lengthSince && s.Length >= 0,
			op.name == "METADATA" && kind == chainMetadata:
			out = append(out, f)
		}
	}
	if op.name == coalesce {
		inner, _ := coalesced(s.Arg)
		for i := range inner {
			out = append(out, inner[i].Newer()...)
		}
	}
	return out
}

// coalesced returns the operators in the argument of COALESCE, or the fault in it.
func coalesced(arg string) ([]Segment, string) {
	const form = `give a JSON object with a list of operators, as {"operators": [{"command": "REQ", "param": "x"}]}`
	var doc map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal([]byte(arg), &doc) != nil || json.Unmarshal(doc["operators"], &list) != nil || len(list) == 0 {
		return nil, form
	}
	var out []Segment
	for i, item := range list {
		seg, reason := coalescedItem(item)
		if reason != "" {
			return nil, fmt.Sprintf("operator %d: %s", i, reason)
		}
		out = append(out, seg)
	}
	return out, ""
}

func coalescedItem(item json.RawMessage) (Segment, string) {
	seg := Segment{Length: -1}
	var fields map[string]json.RawMessage
	if json.Unmarshal(item, &seg.Operator) != nil || string(item) == "null" {
		if json.Unmarshal(item, &fields) != nil || fields == nil {
			return seg, "give the name of an operator, or an object with command, param, and max_length"
		}
		for _, f := range [...]struct {
			key string
			to  any
		}{{"command", &seg.Operator}, {"param", &seg.Arg}, {"max_length", &seg.Length}} {
			value, ok := fields[f.key]
			if ok && (json.Unmarshal(value, f.to) != nil || string(value) == "null") {
				return seg, f.key + " has the wrong type"
			}
			if f.to == &seg.Length && ok && seg.Length <= 0 {
				return seg, "max_length is not positive"
			}
		}
	}
	op, ok := findOperator(seg.Operator)
	if !ok {
		return seg, fmt.Sprintf("there is no operator %q", clip.Value(seg.Operator))
	}
	if err := op.fault(&seg); err != nil {
		return seg, err.Reason
	}
	return seg, ""
}
