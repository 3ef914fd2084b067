// Package classes matches policies once for all dataplanes that the policies do not distinguish.
package classes

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Table holds the matched policies of each class of dataplanes of an index. Two dataplanes are in
// one class if their inbounds, tags, labels, and names are equal as far as some policy reads them.
// It is not safe for concurrent use.
type Table struct {
	index *policy.Index

	tags, labels words
	tagKeys      []string // of tags, sorted
	labelKeys    []string
	names        map[string]bool // dataplanes that policies or selectors name
	sections     bool            // some policy selects an inbound by its name or port
	namespaces   bool            // some policy applies only to its own namespace

	known map[string]*policy.Match
	key   []byte // scratch
}

// words holds the values that policies require, by the key of a tag or label. Policies do not
// distinguish other values.
type words map[string]map[string]bool

func (w words) add(key, value string) {
	if w[key] == nil {
		w[key] = map[string]bool{}
	}
	w[key][value] = true
}

func (w words) addAll(m map[string]string) {
	for k, v := range m {
		w.add(k, v)
	}
}

// New returns a table without classes.
func New(x *policy.Index) *Table {
	t := &Table{index: x, tags: words{}, labels: words{}, names: map[string]bool{}, known: map[string]*policy.Match{}}
	var routes []*resource.Resource
	routed := false // some policy applies to the requests of a route
	for i := range x.Plugins {
		for _, d := range x.Plugins[i].Kinds {
			for p, spec := range resource.Specs[*resource.Policy](x.Policies(d.Kind)) {
				switch p.Labels[resource.LabelPolicyRole] {
				case "consumer", "workload-owner":
					t.namespaces = true
				}
				if spec.TargetRef != nil {
					t.ref(p, spec.TargetRef)
					routed = routed || x.Routes(spec.TargetRef.Kind)
				}
				if x.Routes(d.Kind) {
					routes = append(routes, p)
				}
			}
		}
		for _, l := range x.Plugins[i].Legacy {
			for _, spec := range resource.Specs[*resource.LegacyPolicy](x.Policies(l.Kind)) {
				for _, list := range [...][]resource.LegacySelector{spec.Sources, spec.Destinations, spec.Selectors} {
					for j := range list {
						t.tags.addAll(list[j].Match)
					}
				}
			}
		}
	}
	for p, spec := range resource.Specs[*resource.Policy](routes) {
		for i := 0; routed && i < len(spec.To); i++ { // the services whose inbounds receive the requests
			t.ref(p, &spec.To[i].TargetRef)
		}
	}
	t.tagKeys, t.labelKeys = slices.Sorted(maps.Keys(t.tags)), slices.Sorted(maps.Keys(t.labels))
	return t
}

// ref adds what a targetRef of a policy reads of a dataplane.
func (t *Table) ref(p *resource.Resource, ref *resource.TargetRef) {
	t.tags.addAll(ref.Tags)
	t.sections = t.sections || ref.SectionName != ""
	switch ref.Kind {
	case "MeshServiceSubset":
		t.tags.add(resource.TagService, ref.Name)
	case mesh.KindMeshService:
		t.tags.add(resource.TagService, ref.Name)
		for _, k := range t.index.Resolve(p, ref) {
			r := t.index.View.MeshService(k)
			if r == nil {
				continue
			}
			if spec, ok := r.Spec.(*resource.MeshService); ok {
				t.selector(r, &spec.Selector)
			}
		}
	case "Dataplane":
		t.labels.addAll(ref.Labels)
		if ref.Name != "" {
			for _, name := range mesh.Qualified(p, ref.Name, ref.Namespace) {
				t.names[name] = true
			}
		}
	}
}

// selector adds what the selector of a MeshService reads of a dataplane.
func (t *Table) selector(service *resource.Resource, s *resource.MeshServiceSelector) {
	t.tags.addAll(s.DataplaneTags)
	if s.DataplaneRef != nil {
		for _, name := range mesh.Qualified(service, s.DataplaneRef.Name, "") {
			t.names[name] = true
		}
	}
	if s.DataplaneLabels != nil {
		t.labels.addAll(s.DataplaneLabels.MatchLabels)
	}
}

// Match selects the policies of a dataplane, like [policy.Index.Match]. The result is shared by all
// dataplanes of a class.
func (t *Table) Match(dataplane *resource.Resource) *policy.Match {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return t.index.Match(dataplane)
	}
	t.write(dataplane, dp)
	m := t.known[string(t.key)]
	if m == nil {
		m = t.index.Match(dataplane)
		t.known[string(t.key)] = m
	}
	return m
}

// write sets key to the class of a dataplane.
func (t *Table) write(r *resource.Resource, dp *resource.Dataplane) {
	t.key = t.key[:0]
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		if in.State == resource.InboundIgnored {
			t.key = append(t.key, 0)
			continue
		}
		t.key = append(t.key, 1)
		t.writeTags(in.Tags)
		if t.sections {
			t.text(in.Name)
			t.key = binary.AppendUvarint(t.key, uint64(in.Port))
		}
	}
	if g := dp.Networking.Gateway; g != nil {
		t.key = append(t.key, 2)
		t.writeTags(g.Tags)
	}
	t.key = append(t.key, 3)
	if len(t.labelKeys) > 0 {
		labels := t.index.View.Labels(r)
		for _, k := range t.labelKeys {
			v, ok := labels[k]
			t.value(t.labels[k], v, ok)
		}
	}
	t.value(t.names, r.Name, true)
	if t.namespaces {
		t.text(r.Namespace())
	}
}

func (t *Table) writeTags(tags map[string]string) {
	for _, k := range t.tagKeys {
		v, ok := tags[k]
		if k == resource.TagZone && v == "" {
			v, ok = t.index.View.Zone, true
		}
		t.value(t.tags[k], v, ok)
	}
}

// value appends the value of a tag or label, if some policy requires it, or whether it exists.
func (t *Table) value(required map[string]bool, v string, exists bool) {
	switch {
	case !exists:
		t.key = append(t.key, 0)
	case !required[v]:
		t.key = append(t.key, 1)
	default:
		t.key = append(t.key, 2)
		t.text(v)
	}
}

func (t *Table) text(s string) {
	t.key = append(binary.AppendUvarint(t.key, uint64(len(s))), s...)
}
