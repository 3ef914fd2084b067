package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/base/yamltext"
)

// object injects one object of a stream.
func (in *injector) object(t Text, n *yamltext.Node) {
	name := n.Get("kind").Text()
	if listed(name) {
		return
	}
	kind := templated[name]
	namespace, shown := in.nameOf(n)
	if kind == nil || !slices.Contains(kind.groups, group(n)) {
		if get(n, "spec", "template", "spec", "containers") == nil {
			in.result.Others++
			return
		}
		in.report(t, n, Object{Name: shown, Outcome: Skipped, Warning: true,
			Reason: "inject does not know this kind; the webhook can inject its pods"})
		return
	}
	path := strings.Join(kind.path, ".")
	fail := func(line int, field string, err error) {
		reason := err.Error()
		// errors about a template begin with the path below it
		if first, rest, ok := strings.Cut(reason, ": "); ok && field == "" &&
			(strings.HasPrefix(first, "spec.") || strings.HasPrefix(first, "metadata.")) {
			field, reason = first, rest
		}
		if path != "" && field != "" {
			field = path + "." + field
		} else if path != "" {
			field = path
		}
		in.fail(&strict.Fault{Line: max(line, n.Line), Field: field, Reason: reason}, t, shown)
	}
	if key, line := n.Duplicate(); key != "" {
		reason := fmt.Sprintf("the key %q is given twice: remove one of them", key)
		in.fail(&strict.Fault{Line: line, Reason: reason}, t, shown)
		return
	}
	template := get(n, kind.path...)
	if template.Get("spec").Get("containers").IsNull() {
		fail(lineOf(template, n), "spec.containers", errors.New("is missing: a pod needs a container"))
		return
	}
	pod, fault := decode(template)
	if fault != nil {
		fail(fault.Line, fault.Field, errors.New(fault.Reason))
		return
	}
	pod.Kind, pod.Namespace, pod.NamespaceMetadata = name, namespace, in.namespaces[namespace]
	pod.Name = n.Get("metadata").Get("name").Text()
	o := Object{Name: shown, Outcome: Skipped}
	selected, note, err := inject.Select(pod, in.Options.Options)
	if err != nil {
		fail(template.Line, "", err)
		return
	}
	if !selected {
		o.Reason, o.Warning = note.Text, note.Warning
		in.report(t, n, o)
		return
	}
	edits, notes, err := inject.Plan(pod, in.Options.Options)
	if err != nil {
		for _, e := range split(err) {
			fail(template.Line, "", e)
		}
		return
	}
	o.Outcome, o.Notes = Injected, notes
	if len(edits) == 0 {
		o.Outcome = Unchanged
	}
	for _, e := range edits {
		if err := apply(template, e); err != nil {
			line := template.Line
			if refused := (*yamltext.EditError)(nil); errors.As(err, &refused) {
				line = refused.Line
			}
			fail(line, e.Path.String(), err)
			return
		}
	}
	in.report(t, n, o)
}

func (in *injector) report(t Text, n *yamltext.Node, o Object) {
	o.File, o.Line = t.Name, n.Line
	in.result.Objects = append(in.result.Objects, o)
}

// split returns the parts of a joined error.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func lineOf(nodes ...*yamltext.Node) int {
	for _, n := range nodes {
		if n != nil {
			return n.Line
		}
	}
	return 0
}

func get(n *yamltext.Node, path ...string) *yamltext.Node {
	for _, key := range path {
		n = n.Get(key)
	}
	return n
}

// decode decodes a pod template.
func decode(template *yamltext.Node) (inject.Pod, *strict.Fault) {
	meta := template.Get("metadata")
	for _, name := range []string{"labels", "annotations"} {
		m := meta.Get(name)
		if m == nil {
			continue
		}
		for _, k := range m.Keys {
			if k.Value.Text() == "" && k.Value.Value != "" || k.Value.Kind != yamltext.Scalar {
				return inject.Pod{}, &strict.Fault{Line: k.Value.Line,
					Field:  inject.Path{"metadata", name, k.Name}.String(),
					Reason: fmt.Sprintf("%s is not a string: write it in quotes", strict.Short(string(k.Value.JSON())))}
			}
		}
	}
	var pod inject.Pod
	err := json.Unmarshal(template.JSON(), &pod)
	if mismatch := (*json.UnmarshalTypeError)(nil); errors.As(err, &mismatch) {
		return pod, &strict.Fault{Line: template.Line, Field: mismatch.Field,
			Reason: fmt.Sprintf("a %s is not allowed here", mismatch.Value)}
	} else if err != nil {
		return pod, &strict.Fault{Line: template.Line, Reason: "cannot be decoded: " + err.Error()}
	}
	return pod, nil
}

// apply makes one edit of a pod template.
func apply(template *yamltext.Node, e inject.Edit) error {
	data, err := json.Marshal(e.Value)
	if err != nil {
		return err
	}
	value, err := yamltext.FromJSON(data)
	if err != nil {
		return err
	}
	parent, last := template, e.Path[len(e.Path)-1]
	for _, step := range e.Path[:len(e.Path)-1] {
		next := child(parent, step)
		if next == nil {
			next = yamltext.NewMapping()
			if err := parent.AddKey(step, next); err != nil {
				return err
			}
		}
		parent = next
	}
	target := child(parent, last)
	switch {
	case e.Op == inject.Add:
		return parent.AddKey(last, value)
	case e.Op == inject.Replace && target != nil:
		return target.SetScalar(value)
	case e.Op == inject.Replace:
		return errors.New("the value to be replaced does not exist")
	case target == nil:
		target = yamltext.NewSequence()
		if err := parent.AddKey(last, target); err != nil {
			return err
		}
	}
	if e.Op == inject.Prepend {
		return target.Prepend(value)
	}
	return target.Append(value)
}

// child returns the value below a key or an index, or nil.
func child(n *yamltext.Node, step string) *yamltext.Node {
	if n.Kind == yamltext.Sequence {
		return n.Item(step)
	}
	return n.Get(step)
}
