package proxypatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// structural reports whether a rule of package envoy is about the structure of a resource. A policy that breaks one has no
// effect on the resource. What else Envoy would reject, in values that are written in a language of their own and in what
// one resource says of others, is found when the whole config is checked.
func structural(rule int) bool {
	switch rule {
	case 0, 35, 43, 59, 84, 85, 87, 89, 99, 100, 103, 107: // the rules that Envoy's API carries
		return true
	case 1, 2, 3, 4, 5, 20, 21, 40, 41, 42, 53, 54, 74, 75, 76, 78, 80, 81, 88: // what goes together, and in which order
		return true
	}
	return false
}

// alone returns the structural findings about the sealed resources of a draft, each by itself.
func alone(c *load.Checker, d *draft.Draft) []finding.Finding {
	s := draft.NewSealer(nil)
	s.Add(d)
	sealed, faults := s.Finish()
	var out []finding.Finding
	for _, f := range faults {
		if f.Left {
			out = append(out, finding.Finding{Message: f.Err.Error()})
		}
	}
	for k := range envoy.NumKinds {
		for _, r := range sealed.Resources[draft.Rank(k.URL())] {
			out = append(out, c.Alone(k, (*envoy.Resource)(r))...)
		}
	}
	return slices.DeleteFunc(out, func(f finding.Finding) bool { return !structural(f.Rule) })
}

// broken returns the first rule for fields that a message breaks.
func broken(m proto.Message) error {
	if r, ok := m.(interface{ Validate() error }); !ok || r.Validate() == nil {
		return nil // without the cost of looking for the path
	}
	return firstOf(load.CheckFields(m, false))
}

// firstOf makes an error of the first finding, nil for none.
func firstOf(findings []finding.Finding) error {
	if len(findings) == 0 {
		return nil
	}
	var faults []resource.Fault
	report(resource.NewValidator("", &faults), findings[:1])
	return firstFault(faults)
}

// firstFault makes an error of the first fault, nil for none.
func firstFault(faults []resource.Fault) error {
	switch {
	case len(faults) == 0:
		return nil
	case faults[0].Field == "":
		return fmt.Errorf("%s", faults[0].Reason)
	}
	return fmt.Errorf("%s: %s", faults[0].Field, faults[0].Reason)
}

// report reports findings about a message at its fields. It returns true for none.
func report(v *resource.Validator, findings []finding.Finding) bool {
	for _, f := range findings {
		at := v
		tokens, _ := jsonpatch.ParsePointer(f.Pointer)
		for _, t := range tokens {
			if i, err := strconv.Atoi(t); err == nil {
				at = at.Index(i)
			} else if strings.ContainsAny(t, "./@ ") {
				at = at.Key(t)
			} else {
				at = at.Field(t)
			}
		}
		at.Faultf("%s", f.Message)
	}
	return len(findings) == 0
}

// checkWhole reports what Envoy would reject of a resource that is added.
func checkWhole(v *resource.Validator, m proto.Message) bool {
	r, err := envoy.NewResource(m)
	if err != nil {
		return true // no resource of its own
	}
	var c load.Checker
	for k := range envoy.NumKinds {
		if strings.HasSuffix(k.URL(), "/"+string(m.ProtoReflect().Descriptor().FullName())) {
			return report(v, slices.DeleteFunc(slices.Clone(c.Alone(k, r)), func(f finding.Finding) bool { return !structural(f.Rule) }))
		}
	}
	return true
}
