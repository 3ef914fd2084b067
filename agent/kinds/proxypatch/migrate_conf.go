package proxypatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// successor says what a template says, as modifications. What cannot be said is noted.
func (c *LegacyConf) successor(notes *[]string) *Conf {
	out := &Conf{}
	add := func(m Modification) { out.AppendModifications = append(out.AppendModifications, m) }
	if !slices.Contains(c.Imports, defaultProfile) { // nothing of what the agent makes
		add(Modification{Listener: &Mod[ListenerMatch]{Operation: Remove}})
		add(Modification{Cluster: &Mod[ClusterMatch]{Operation: Remove}})
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.change == nil {
			continue
		}
		value, err := withoutType(r.Resource)
		switch {
		case err != nil:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] cannot be read: %v: it is left out", i, err))
		case r.change.target == clusters:
			add(Modification{Cluster: &Mod[ClusterMatch]{Operation: Add, Value: &value}})
		case r.change.target == listeners:
			add(Modification{Listener: &Mod[ListenerMatch]{Operation: Add, Value: &value}})
		default:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] (%s): a MeshProxyPatch adds clusters and listeners alone: it is left out", i, r.Name))
		}
	}
	for i := range c.Modifications {
		m := c.Modifications[i].successor()
		at := m.matching()
		if at.origin == nil || *at.origin != originTemplate && *at.origin != originRaw {
			add(m)
			continue
		}
		// What templates have added has one origin now, so it goes by its name.
		if at.host {
			*notes = append(*notes, fmt.Sprintf("conf.modifications[%d]: virtual hosts that a template has added cannot be told by their origin: it is left out", i))
			continue
		}
		for _, name := range c.added(at.target, *at.origin == originRaw, i) {
			if at.name != nil && *at.name != name {
				continue
			}
			with := c.Modifications[i].successor()
			at := with.matching()
			*at.setOrigin, *at.setName = ptr(originPatch), &name
			add(with)
		}
	}
	return out
}

// matching is what a modification matches by.
type matching struct {
	target             target // listeners for what is in them
	host               bool   // it is about virtual hosts
	origin, name       *string
	setOrigin, setName **string
}

func (m *Modification) matching() matching {
	p := matching{}
	switch {
	case m.Cluster != nil && m.Cluster.Match != nil:
		p.target, p.setOrigin, p.setName = clusters, &m.Cluster.Match.Origin, &m.Cluster.Match.Name
	case m.Listener != nil && m.Listener.Match != nil:
		p.target, p.setOrigin, p.setName = listeners, &m.Listener.Match.Origin, &m.Listener.Match.Name
	case m.NetworkFilter != nil && m.NetworkFilter.Match != nil:
		p.target, p.setOrigin, p.setName = listeners, &m.NetworkFilter.Match.Origin, &m.NetworkFilter.Match.ListenerName
	case m.HTTPFilter != nil && m.HTTPFilter.Match != nil:
		p.target, p.setOrigin, p.setName = listeners, &m.HTTPFilter.Match.Origin, &m.HTTPFilter.Match.ListenerName
	case m.VirtualHost != nil && m.VirtualHost.Match != nil:
		p.target, p.host, p.setOrigin = listeners, true, &m.VirtualHost.Match.Origin
	default:
		return p
	}
	p.origin = *p.setOrigin
	if p.setName != nil {
		p.name = *p.setName
	}
	return p
}

// added returns the names of the resources of a kind that a template has added, as raw resources or by modifications
// before one of them.
func (c *LegacyConf) added(t target, raw bool, before int) []string {
	var list []*change
	if raw {
		for i := range c.Resources {
			list = append(list, c.Resources[i].change)
		}
	} else {
		for i := range before {
			list = append(list, c.Modifications[i].change)
		}
	}
	var out []string
	for _, ch := range list {
		if ch != nil && ch.target == t && ch.op == Add {
			out = append(out, nameOf(ch.value.message))
		}
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// withoutType writes a resource without the member that says what it is.
func withoutType(text string) (string, error) {
	var faults []resource.Fault
	b := resource.NewValidator("", &faults).Embedded(text)
	if b == nil {
		return "", firstOf(faults)
	}
	tree, err := jsonpatch.Decode(b)
	if err != nil {
		return "", err
	}
	if o, ok := tree.(map[string]any); ok {
		delete(o, typeKey)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(tree)
	return out.String(), err
}

func (m *LegacyModification) successor() Modification {
	var out Modification
	if o := m.Cluster; o != nil {
		out.Cluster = mod[ClusterMatch](o.Operation, o.Value)
		if o.Match != nil {
			out.Cluster.Match = &ClusterMatch{Origin: unlessEmpty(o.Match.Origin), Name: unlessEmpty(o.Match.Name)}
		}
	}
	if o := m.Listener; o != nil {
		out.Listener = mod[ListenerMatch](o.Operation, o.Value)
		if o.Match != nil {
			out.Listener.Match = &ListenerMatch{Origin: unlessEmpty(o.Match.Origin), Name: unlessEmpty(o.Match.Name), Tags: o.Match.Tags}
		}
	}
	if o := m.NetworkFilter; o != nil {
		out.NetworkFilter = mod[FilterMatch](o.Operation, o.Value)
		out.NetworkFilter.Match = o.Match.successor()
	}
	if o := m.HTTPFilter; o != nil {
		out.HTTPFilter = mod[FilterMatch](o.Operation, o.Value)
		out.HTTPFilter.Match = o.Match.successor()
	}
	if o := m.VirtualHost; o != nil {
		out.VirtualHost = mod[VirtualHostMatch](o.Operation, o.Value)
		if o.Match != nil {
			out.VirtualHost.Match = &VirtualHostMatch{
				Origin: unlessEmpty(o.Match.Origin), Name: unlessEmpty(o.Match.Name), RouteConfigurationName: unlessEmpty(o.Match.RouteConfigurationName),
			}
		}
	}
	return out
}

func (m *LegacyFilterMatch) successor() *FilterMatch {
	if m == nil {
		return nil
	}
	return &FilterMatch{Origin: unlessEmpty(m.Origin), Name: unlessEmpty(m.Name), ListenerName: unlessEmpty(m.ListenerName), ListenerTags: m.ListenerTags}
}

// mod writes an operation with a capital letter.
func mod[M matcher](operation, value string) *Mod[M] {
	out := &Mod[M]{Value: unlessEmpty(value)}
	if operation != "" {
		out.Operation = Operation(strings.ToUpper(operation[:1]) + operation[1:])
	}
	return out
}
