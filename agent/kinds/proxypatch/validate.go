package proxypatch

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Validate reads all values and patches, and reports what is wrong with them.
func (c *Conf) Validate(v *resource.Validator) {
	list := v.Field("appendModifications")
	if len(c.AppendModifications) == 0 {
		list.Faultf("the list is empty: give at least one modification")
	}
	for i := range c.AppendModifications {
		m := &c.AppendModifications[i]
		m.change = theOne(list.Index(i), []written{
			writtenOf(clusters, m.Cluster), writtenOf(listeners, m.Listener), writtenOf(networkFilters, m.NetworkFilter),
			writtenOf(httpFilters, m.HTTPFilter), writtenOf(virtualHosts, m.VirtualHost),
		}, fmt.Sprintf("spec.default.appendModifications[%d]", i))
	}
}

// written is a modification of either kind, not yet read.
type written struct {
	given   bool
	legacy  bool
	target  target
	op      string
	match   match
	matched bool // a match is given
	value   *string
	patches []JSONPatch
}

func writtenOf[M matcher](t target, m *Mod[M]) written {
	if m == nil {
		return written{target: t}
	}
	w := written{given: true, target: t, op: string(m.Operation), value: m.Value, patches: m.JSONPatches}
	if m.Match != nil {
		w.matched, w.match = true, (*m.Match).match()
	}
	return w
}

// theOne reads the only modification that is given.
func theOne(v *resource.Validator, list []written, at string) *change {
	var names, found []string
	var one written
	for _, w := range list {
		names = append(names, targets[w.target].name)
		if w.given {
			found = append(found, targets[w.target].name)
			one = w
		}
	}
	switch len(found) {
	case 0:
		v.Faultf("nothing to modify is given: give one of %s", strings.Join(names, ", "))
		return nil
	case 1:
		return one.read(v.Field(found[0]), at)
	}
	v.Faultf("%s are given: give one, and further ones as items of their own", strings.Join(found, ", "))
	return nil
}

// read checks a modification and reads its value. It reports every fault and returns nil when there was one.
func (w *written) read(v *resource.Validator, at string) *change {
	op, ok := w.operation(v.Field("operation"))
	if !ok {
		return nil
	}
	c := &change{target: w.target, op: op, match: w.match, at: at}
	ok = w.checkMatch(v.Field("match"), op)
	switch op {
	case Remove:
		ok = absent(v, w, "%s takes none: remove it") && ok
	case Patch:
		return w.readPatch(v, c, ok)
	default:
		if len(w.patches) > 0 {
			v.Field("jsonPatches").Faultf("%s takes a value: JSON Patches go with Patch alone", w.op)
			ok = false
		}
		if w.value == nil {
			v.Field("value").Faultf("the value is missing: give what to add, as YAML or JSON of Envoy's %s", targets[w.target].message.ProtoReflect().Descriptor().Name())
			return nil
		}
		return w.readValue(v, c, ok, false)
	}
	if !ok {
		return nil
	}
	return c
}

// operation returns the operation, whose legacy names begin with a small letter.
func (w *written) operation(v *resource.Validator) (Operation, bool) {
	var names []string
	var found Operation
	for _, op := range targets[w.target].operations {
		name := string(op)
		if w.legacy {
			name = strings.ToLower(name[:1]) + name[1:]
		}
		if names = append(names, name); name == w.op {
			found = op
		}
	}
	return found, v.OneOf(w.op, names...)
}

// absent refuses value and patches.
func absent(v *resource.Validator, w *written, format string) bool {
	if w.value != nil {
		v.Field("value").Faultf(format, w.op)
	}
	if len(w.patches) > 0 {
		v.Field("jsonPatches").Faultf(format, w.op)
	}
	return w.value == nil && len(w.patches) == 0
}

func (w *written) checkMatch(v *resource.Validator, op Operation) bool {
	ok := true
	fault := func(v *resource.Validator, format string, args ...any) {
		v.Faultf(format, args...)
		ok = false
	}
	for _, f := range []struct {
		name  string
		value *string
	}{{"origin", w.match.origin}, {"name", w.match.name}, {"listenerName", w.match.listener}, {"routeConfigurationName", w.match.routes}} {
		if f.value != nil && *f.value == "" {
			fault(v.Field(f.name), "the text is empty and matches nothing: give one or leave the field out")
		}
	}
	switch {
	case op == Add && w.target != virtualHosts && w.matched:
		fault(v, "what is added has no match: remove it")
	case op == Add && w.match.name != nil:
		fault(v.Field("name"), "the virtual host is new, its name stands in the value: remove it here")
	case w.target.filter() && w.match.name == nil && (op == AddBefore || op == AddAfter):
		fault(v.Field("name"), "the name is missing: give that of the filter %s which the new one is added", strings.ToLower(string(op)[len("Add"):]))
	case w.target.filter() && w.match.name == nil && op == Patch:
		fault(v.Field("name"), "the name is missing: give that of the filter to patch")
	}
	return ok
}

func (w *written) readPatch(v *resource.Validator, c *change, ok bool) *change {
	switch {
	case w.value != nil && len(w.patches) > 0:
		v.Faultf("value and jsonPatches are given: give one of them")
		return nil
	case w.value != nil:
		return w.readValue(v, c, ok, true)
	case len(w.patches) == 0:
		v.Faultf("there is nothing to patch with: give value or jsonPatches")
		return nil
	}
	c.patch = readPatches(v.Field("jsonPatches"), w.patches, w.patched())
	if !ok || c.patch == nil {
		return nil
	}
	return c
}

// readValue reads what is added, or a part to merge.
func (w *written) readValue(v *resource.Validator, c *change, ok, partial bool) *change {
	m := w.target.newMessage()
	at := v.Field("value")
	if w.legacy && *w.value == "" {
		at.Faultf("the value is missing")
		return nil
	}
	p, tree, good := parse(at, *w.value, m, partial)
	if !good {
		return nil
	}
	if c.value = p; !c.takeApart(at, tree) {
		return nil
	}
	if !partial && !fits(at, m) || !ok {
		return nil
	}
	if name := nameOf(m); partial && !w.target.filter() && w.target != virtualHosts && name != "" && c.match.name != nil && *c.match.name != name {
		at.Field("name").Faultf("%q is not the name that is matched, %q: a patch cannot rename", name, *c.match.name)
		return nil
	}
	return c
}

// fits reports what Envoy would refuse of a message that is added, beyond the rules for its fields.
func fits(v *resource.Validator, m proto.Message) bool {
	var faults []resource.Fault
	checkEnvoy(resource.NewValidator("", &faults), m)
	if len(faults) > 0 {
		checkEnvoy(v, m)
	}
	return len(faults) == 0
}
