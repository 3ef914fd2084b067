package proxypatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Validate parses and validates all values and patches.
func (c *Conf) Validate(v *resource.Validator) {
	list := v.Field("appendModifications")
	if len(c.AppendModifications) == 0 {
		list.Faultf("the list is empty: give at least one modification")
	}
	for i := range c.AppendModifications {
		m := &c.AppendModifications[i]
		m.change = Read(list.Index(i), fmt.Sprintf("spec.default.appendModifications[%d]", i), OriginPatch,
			m.Cluster.As(Clusters), m.Listener.As(Listeners), m.NetworkFilter.As(NetworkFilters), m.HTTPFilter.As(HTTPFilters),
			m.VirtualHost.As(VirtualHosts))
	}
}

// changes returns the valid modifications.
func (c *Conf) changes() []*Change {
	out := make([]*Change, 0, len(c.AppendModifications))
	for i := range c.AppendModifications {
		if ch := c.AppendModifications[i].change; ch != nil {
			out = append(out, ch)
		}
	}
	return out
}

// Input is a modification before validation.
type Input struct {
	target  Target
	given   bool
	lower   bool // operations begin with a lower-case letter
	op      string
	match   match
	matched bool // whether a match is given
	value   *secret.EnvoyText
	patches []JSONPatch
}

// As returns the modification for a target.
func (m *Mod[M]) As(t Target) Input {
	if m == nil {
		return Input{target: t}
	}
	w := Input{target: t, given: true, op: string(m.Operation), value: m.Value, patches: m.JSONPatches}
	if m.Match != nil {
		w.matched, w.match = true, (*m.Match).match()
	}
	return w
}

// As returns the modification of a legacy kind for a target.
func (m *BaseMod[M]) As(t Target) Input {
	w := m.Mod().As(t)
	if w.lower = true; m != nil {
		w.op = string(m.Operation)
	}
	return w
}

// Read validates the only modification of a list that is given. at is its path in the policy, and
// origin the origin of a resource that it adds. Read reports every fault and returns nil if there
// is one.
func Read(v *resource.Validator, at, origin string, list ...Input) *Change {
	var names, found []string
	var one Input
	for _, w := range list {
		names = append(names, targets[w.target].name)
		if w.given {
			found = append(found, targets[w.target].name)
			one = w
		}
	}
	switch len(found) {
	case 0:
		v.Faultf("no target is given: give one of %s", strings.Join(names, ", "))
		return nil
	case 1:
		return one.read(v.Field(found[0]), &Change{target: one.target, match: one.match, at: at, origin: origin})
	}
	v.Faultf("%s are given: give one, and others in separate items", strings.Join(found, ", "))
	return nil
}

// read validates a modification and parses its value.
func (w *Input) read(v *resource.Validator, c *Change) *Change {
	op, ok := w.operation(v.Field("operation"))
	if !ok {
		return nil
	}
	c.op = op
	ok = w.checkMatch(v.Field("match"), op)
	switch {
	case op == Remove:
		if w.value != nil {
			v.Field("value").Faultf("%s has no value: remove it", w.op)
		}
		if len(w.patches) > 0 {
			v.Field("jsonPatches").Faultf("%s has no jsonPatches: remove them", w.op)
		}
		ok = ok && w.value == nil && len(w.patches) == 0
	case op == Patch && w.value != nil && len(w.patches) > 0:
		v.Faultf("value and jsonPatches are given: give one of them")
		return nil
	case op == Patch && len(w.patches) > 0:
		c.patch = readPatches(v.Field("jsonPatches"), w.patches, w.patched())
		ok = ok && c.patch != nil
	case op == Patch && w.value == nil:
		v.Faultf("no patch is given: give value or jsonPatches")
		return nil
	case len(w.patches) > 0:
		v.Field("jsonPatches").Faultf("%s requires a value: only Patch supports jsonPatches", w.op)
		return nil
	case w.value == nil:
		v.Field("value").Faultf("the value is missing: give the object to add as YAML or JSON of Envoy's %s",
			targets[w.target].message.ProtoReflect().Descriptor().Name())
		return nil
	default:
		ok = w.readValue(v.Field("value"), c) && ok
	}
	if !ok {
		return nil
	}
	return c
}

// operation returns the operation, in the spelling of the kind.
func (w *Input) operation(v *resource.Validator) (Operation, bool) {
	var names []string
	var found Operation
	for _, op := range targets[w.target].operations {
		name := string(op)
		if w.lower {
			name = strings.ToLower(name[:1]) + name[1:]
		}
		if names = append(names, name); name == w.op {
			found = op
		}
	}
	return found, v.OneOf(w.op, names...)
}

func (w *Input) checkMatch(v *resource.Validator, op Operation) bool {
	ok := true
	fault := func(v *resource.Validator, format string, args ...any) {
		v.Faultf(format, args...)
		ok = false
	}
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"origin", w.match.origin}, {"name", w.match.name}, {"listenerName", w.match.listener},
		{"routeConfigurationName", w.match.routes},
	} {
		if f.value != nil && *f.value == "" {
			fault(v.Field(f.name), "the value is empty and matches nothing: give a value")
		}
	}
	switch {
	case op == Add && w.target != VirtualHosts && w.matched:
		fault(v, "operation Add has no match: remove it")
	case op == Add && w.match.name != nil:
		fault(v.Field("name"), "the value contains the name of the new virtual host: remove it here")
	case w.target.filter() && w.match.name == nil && (op == AddBefore || op == AddAfter):
		fault(v.Field("name"), "the name is missing: give the name of the filter %s which to add",
			strings.ToLower(string(op)[len("Add"):]))
	case w.target.filter() && w.match.name == nil && op == Patch:
		fault(v.Field("name"), "the name is missing: give the name of the filter to patch")
	}
	return ok
}

// readValue parses the object to add, or the fields to merge.
func (w *Input) readValue(v *resource.Validator, c *Change) bool {
	partial := c.op == Patch
	m := targets[w.target].message.ProtoReflect().New().Interface()
	p, tree, ok := parse(v, w.value.Reveal(), m, partial)
	if !ok {
		return false
	}
	if c.value = p; !c.readFilter(v, tree) || !partial && !checkWhole(v, m) {
		return false
	}
	name := nameOf(m)
	if partial && !w.target.filter() && w.target != VirtualHosts && name != "" && !is(c.match.name, name) {
		v.Field("name").Faultf("%q differs from the matched name, %q: a patch cannot rename", name, *c.match.name)
		return false
	}
	return true
}

// ReadResource parses a whole resource to add, given as text with @type. It reports every fault and
// returns nil if there is one.
func ReadResource(v *resource.Validator, text, at, origin string) *Change {
	a := &anypb.Any{}
	p, _, ok := parse(v, text, a, false)
	if !ok {
		return nil
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		v.Faultf("%s", plainError(err))
		return nil
	}
	c := &Change{op: Add, at: at, origin: origin, target: Resources, value: p}
	switch m.(type) {
	case *clusterv3.Cluster:
		c.target = Clusters
	case *listenerv3.Listener:
		c.target = Listeners
	case *routev3.RouteConfiguration, *endpointv3.ClusterLoadAssignment, *tlsv3.Secret:
	default:
		v.Field(typeKey).Faultf("%s is not a resource type: give a Cluster, Listener, RouteConfiguration, "+
			"ClusterLoadAssignment, or Secret", nameOfType(m))
		return nil
	}
	if c.value.message = m; !checkWhole(v, m) {
		return nil
	}
	return c
}

// structural reports whether a rule of package finding is about the structure of a resource. A
// policy that violates one has no effect on the resource. Other violations, in values with a
// special syntax and in references between resources, are found when the whole config is checked.
func structural(rule int) bool {
	switch rule {
	case 0, 35, 43, 59, 84, 85, 87, 89, 99, 100, 103, 107: // validation rules of Envoy's API
		return true
	case 1, 2, 3, 4, 5, 20, 21, 40, 41, 42, 53, 54, 74, 75, 76, 78, 80, 81, 88: // combinations and order
		return true
	}
	return false
}

// structuralFindings returns the structural findings for each sealed resource of a draft.
func structuralFindings(c *check.Checker, d *draft.Draft) []finding.Finding {
	s := draft.NewSealer(nil)
	s.Inline = true // as in the policy
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
			out = append(out, c.Single(k, (*envoy.Resource)(r))...)
		}
	}
	return slices.DeleteFunc(out, func(f finding.Finding) bool { return !structural(f.Rule) })
}

// broken returns the first field rule that a message violates.
func broken(m proto.Message) error {
	if fieldrule.First(m) == nil {
		return nil // avoids determining the path
	}
	return firstOf(check.CheckFields(m, false))
}

// firstOf returns the first finding as an error, or nil.
func firstOf(findings []finding.Finding) error {
	if len(findings) == 0 {
		return nil
	}
	var faults []resource.Fault
	report(resource.NewValidator("", &faults), findings[:1])
	return firstFault(faults)
}

// firstFault returns the first fault as an error, or nil.
func firstFault(faults []resource.Fault) error {
	switch {
	case len(faults) == 0:
		return nil
	case faults[0].Field == "":
		return fmt.Errorf("%s", faults[0].Reason)
	}
	return fmt.Errorf("%s: %s", faults[0].Field, faults[0].Reason)
}

// report reports findings of a message at their fields. It returns true if there are none.
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

// checkWhole reports problems for which Envoy would reject an added resource.
func checkWhole(v *resource.Validator, m proto.Message) bool {
	r, err := envoy.NewResource(m)
	if err != nil {
		return true // not a resource
	}
	var c check.Checker
	for k := range envoy.NumKinds {
		if strings.HasSuffix(k.URL(), "/"+string(m.ProtoReflect().Descriptor().FullName())) {
			return report(v, slices.DeleteFunc(slices.Clone(c.Single(k, r)), func(f finding.Finding) bool {
				return !structural(f.Rule)
			}))
		}
	}
	return true
}
