package effect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// List is a list of items in a policy.
type List string

// The lists of a policy. From also stands for rules, because a policy has only one of the two. A
// policy with spec.default has no list; its default is item 0.
const (
	To      List = "to"
	From    List = "from"
	Default List = "default"
)

// Source identifies a conf in a policy.
type Source struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Field is the path of the conf, such as "spec.to[0].default". Append the path of a value to
	// get the path of the value in the document.
	Field string `json:"field"`
}

// Field is a field of a merged conf with all policies that set it.
type Field struct {
	Path  string          `json:"path"`  // in the conf, such as "http.requestTimeout"; a list counts as one value
	Value json.RawMessage `json:"value"` // the effective value
	By    []Source        `json:"by"`    // its sources; several for a merged list
	Over  []Overridden    `json:"over"`  // overridden values, in merge order
}

// Overridden is a value that another source overrides.
type Overridden struct {
	Source
	Value json.RawMessage `json:"value"`
}

// Merged finds the sources of the fields of merged confs. It caches intermediate results, and is
// not safe for concurrent use.
type Merged struct {
	items   items
	decided map[ruleID][]decided
}

type ruleID struct {
	rule *policy.Rule
	in   List
}

// NewMerged returns an empty cache.
func NewMerged() *Merged { return &Merged{items{}, map[ruleID][]decided{}} }

// Fields returns the fields of a rule's merged conf with their sources, in document order.
func (m *Merged) Fields(r *policy.Rule, in List) []Field {
	out := []Field{}
	if r == nil {
		return out
	}
	of := m.items.of(r, in)
	for _, d := range m.decide(r, in) {
		f := Field{Path: d.path, Value: d.value, By: []Source{}, Over: []Overridden{}}
		for _, it := range of {
			value := it.value(d.path)
			switch {
			case value == nil:
			case slices.Contains(d.by, it):
				f.By = append(f.By, it.source)
			default:
				f.Over = append(f.Over, Overridden{it.source, value})
			}
		}
		out = append(out, f)
	}
	return out
}

func (m *Merged) decide(r *policy.Rule, in List) []decided {
	id := ruleID{r, in}
	d, ok := m.decided[id]
	if !ok {
		d = m.items.decide(r, in)
		m.decided[id] = d
	}
	return d
}

// itemID identifies an item of a policy.
type itemID struct {
	policy resource.Key
	in     List
	item   int
}

// item is an item that a rule was merged from.
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

// items caches the decoded items, since many rules share them.
type items map[itemID]*item

func (m items) get(p *resource.Resource, in List, i int) *item {
	id := itemID{p.Key, in, i}
	it := m[id]
	if it == nil {
		conf, source := ItemOf(p, in, i)
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

// decide returns the source of each field of a rule's merged conf.
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
		for _, j := range contributors(of, setters, l) {
			out[i].by = append(out[i].by, of[j])
		}
	}
	return out
}

// of returns the items of a rule in merge order: later ones override earlier ones.
func (m items) of(r *policy.Rule, in List) []*item {
	out := make([]*item, len(r.Origins))
	for i, o := range r.Origins {
		out[i] = m.get(o.Policy, in, o.Item)
	}
	return out
}

// ItemOf returns the conf of an item and its source.
func ItemOf(p *resource.Resource, in List, i int) (resource.Conf, Source) {
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

// maxJoined limits the number of items for which the sources of a merged list are computed. This
// takes one merge per item. Beyond the limit, all items that set the list are returned.
const maxJoined = 64

// contributors returns the indexes of the setters that a field's value comes from.
func contributors(of []*item, setters []int, l leaf) []int {
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
	// The list is merged from several items. An item contributes if the list changes without it.
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
	if len(out) == 0 { // each entry comes from several items
		return last
	}
	return out
}

// indexOf returns the index of a field in a merged conf, or, if a mapping overrides a scalar or the
// reverse, of the first field that takes its place. It returns -1 if there is none.
func indexOf(merged []decided, path string) int {
	j := slices.IndexFunc(merged, func(d decided) bool { return d.path == path })
	if j < 0 {
		j = slices.IndexFunc(merged, func(d decided) bool {
			return strings.HasPrefix(d.path, path) || strings.HasPrefix(path, d.path)
		})
	}
	return j
}
