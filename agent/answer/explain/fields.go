package explain

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// List is the part of a policy that items stand in.
type List string

// The lists of a policy; From stands for rules too, of which a policy has but one. A policy with a
// default has no items; what it says counts as item 0.
const (
	To      List = "to"
	From    List = "from"
	Default List = "default"
)

// Source is a place in a policy.
type Source struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Field is where the conf begins, "spec.to[0].default": with the path of a value behind it, the
	// value's own place.
	Field string `json:"field"`
}

// Field is a field of a merged conf, with all policies that set it.
type Field struct {
	Path  string          `json:"path"`  // in the conf, "http.requestTimeout"; lists count as one value
	Value json.RawMessage `json:"value"` // in force
	By    []Source        `json:"by"`    // where it comes from; several for a list that was joined
	Over  []Overridden    `json:"over"`  // what was set and is not in force, in the order of merging
}

// Overridden is a value that another one took the place of.
type Overridden struct {
	Source
	Value json.RawMessage `json:"value"`
}

// itemID names an item of a policy.
type itemID struct {
	policy resource.Key
	in     List
	item   int
}

// item is one of those that a rule was merged from.
type item struct {
	source Source
	conf   resource.Conf
	leaves []leaf
}

func (it *item) value(path string) json.RawMessage {
	for _, l := range it.leaves {
		if l.path == path {
			return l.value
		}
	}
	return nil
}

// items reads items of policies, each once: many rules are merged from the same ones.
type items map[itemID]*item

func (m items) get(p *resource.Resource, in List, i int) *item {
	id := itemID{p.Key, in, i}
	it := m[id]
	if it == nil {
		conf, source := itemOf(p, in, i)
		it = &item{source, conf, leavesOf(conf)}
		m[id] = it
	}
	return it
}

// decided is a field of a merged conf with the items that its value comes from.
type decided struct {
	leaf
	by []*item
}

// decide finds, for each field of a merged conf, where its value comes from.
func (m items) decide(r *policy.Rule, in List) []decided {
	if r == nil {
		return nil
	}
	of := m.of(r, in)
	leaves := leavesOf(r.Conf)
	out := make([]decided, len(leaves))
	var setters []int
	for i, l := range leaves {
		setters = setters[:0]
		for j := range of {
			if of[j].value(l.path) != nil {
				setters = append(setters, j)
			}
		}
		out[i].leaf = l
		for _, j := range bearers(of, setters, l) {
			out[i].by = append(out[i].by, of[j])
		}
	}
	return out
}

// of returns the items that a rule was merged from, each over the ones before.
func (m items) of(r *policy.Rule, in List) []*item {
	out := make([]*item, len(r.Origins))
	for i, o := range r.Origins {
		out[i] = m.get(o.Policy, in, o.Item)
	}
	return out
}

// itemOf returns the conf of an item and its place.
func itemOf(p *resource.Resource, in List, i int) (resource.Conf, Source) {
	s := Source{Type: p.Kind, Mesh: p.Mesh, Name: p.Name}
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil, s
	}
	list, name := spec.To, string(in)
	switch in {
	case Default:
		s.Field = "spec.default"
		return spec.Default, s
	case From:
		list, name = spec.InboundItems(), spec.InboundField()
	}
	s.Field = fmt.Sprintf("spec.%s[%d]", name, i)
	if spec.Shape == nil || !spec.Shape.Inline {
		s.Field += ".default"
	}
	if i < 0 || i >= len(list) {
		return nil, s
	}
	return list[i].Conf, s
}

// maxJoined bounds the items that are merged again, each left out once, to see whom a joined list
// comes from. Beyond it, all that set the list are named.
const maxJoined = 64

// bearers returns those of the setters of a field, by index, that its value comes from.
func bearers(of []*item, setters []int, l leaf) []int {
	if len(setters) < 2 {
		return setters
	}
	last := setters[len(setters)-1:]
	if bytes.Equal(of[last[0]].value(l.path), l.value) || len(l.value) == 0 || l.value[0] != '[' {
		return last
	}
	if len(of) > maxJoined {
		return setters
	}
	// The list is not the last one alone: items were added to those before, or merged with them.
	var out []int
	for _, without := range setters {
		confs := make([]resource.Conf, 0, len(of)-1)
		for i := range of {
			if i != without && of[i].conf != nil {
				confs = append(confs, of[i].conf)
			}
		}
		rest := item{leaves: leavesOf(resource.Merge(confs...))}
		if !bytes.Equal(rest.value(l.path), l.value) {
			out = append(out, without)
		}
	}
	if len(out) == 0 { // what each adds, another adds too
		return last
	}
	return out
}
