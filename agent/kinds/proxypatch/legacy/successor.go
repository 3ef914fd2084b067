package legacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// successor says what a template says, as modifications. What cannot be said is noted.
func (c *Conf) successor(notes *[]string) *proxypatch.Conf {
	out := &proxypatch.Conf{}
	add := func(m proxypatch.Modification) { out.AppendModifications = append(out.AppendModifications, m) }
	whole := func(t proxypatch.Target, op proxypatch.Operation, value *string) {
		if t == proxypatch.Clusters {
			add(proxypatch.Modification{Cluster: (&proxypatch.BaseMod[proxypatch.ClusterMatch]{Operation: op, Value: value}).Mod()})
		} else {
			add(proxypatch.Modification{Listener: (&proxypatch.BaseMod[proxypatch.ListenerMatch]{Operation: op, Value: value}).Mod()})
		}
	}
	if !slices.Contains(c.Imports, defaultProfile) { // nothing of what the agent makes
		whole(proxypatch.Listeners, proxypatch.Remove, nil)
		whole(proxypatch.Clusters, proxypatch.Remove, nil)
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.change == nil {
			continue
		}
		_, target, _ := r.change.Adds()
		switch value, err := withoutType(r.Resource); {
		case err != nil:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] cannot be read: %v: it is left out", i, err))
		case target == proxypatch.Resources:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] (%s): a MeshProxyPatch adds clusters and listeners alone: it is left out", i, r.Name))
		default:
			whole(target, proxypatch.Add, &value)
		}
	}
	for i := range c.Modifications {
		m := c.Modifications[i].successor()
		target, origin, name := matched(&m)
		if origin == nil || *origin == nil || **origin != originTemplate && **origin != originRaw {
			add(m)
			continue
		}
		// What templates have added has one origin now, so it goes by its name.
		if name == nil {
			*notes = append(*notes, fmt.Sprintf("conf.modifications[%d]: virtual hosts that a template has added cannot be told by their origin: it is left out", i))
			continue
		}
		before := c.modifications(i)
		if **origin == originRaw {
			before = c.resources()
		}
		for _, ch := range before {
			if ch == nil {
				continue
			}
			added, t, ok := ch.Adds()
			if !ok || t != target || *name != nil && **name != added {
				continue
			}
			with := c.Modifications[i].successor()
			_, origin, name := matched(&with)
			*origin, *name = ptr(proxypatch.OriginPatch), &added
			add(with)
		}
	}
	return out
}

func (m *Modification) successor() proxypatch.Modification {
	return proxypatch.Modification{
		Cluster: m.Cluster.Mod(), Listener: m.Listener.Mod(), NetworkFilter: m.NetworkFilter.Mod(), HTTPFilter: m.HTTPFilter.Mod(), VirtualHost: m.VirtualHost.Mod(),
	}
}

// matched returns by which origin and name a modification matches clusters, or listeners for what is in them: nil for what it
// cannot match by.
func matched(m *proxypatch.Modification) (t proxypatch.Target, origin, name **string) {
	switch {
	case m.Cluster != nil && m.Cluster.Match != nil:
		return proxypatch.Clusters, &m.Cluster.Match.Origin, &m.Cluster.Match.Name
	case m.Listener != nil && m.Listener.Match != nil:
		return proxypatch.Listeners, &m.Listener.Match.Origin, &m.Listener.Match.Name
	case m.NetworkFilter != nil && m.NetworkFilter.Match != nil:
		return proxypatch.Listeners, &m.NetworkFilter.Match.Origin, &m.NetworkFilter.Match.ListenerName
	case m.HTTPFilter != nil && m.HTTPFilter.Match != nil:
		return proxypatch.Listeners, &m.HTTPFilter.Match.Origin, &m.HTTPFilter.Match.ListenerName
	case m.VirtualHost != nil && m.VirtualHost.Match != nil:
		return proxypatch.Listeners, &m.VirtualHost.Match.Origin, nil
	}
	return 0, nil, nil
}

func ptr[T any](v T) *T { return &v }

// withoutType writes a resource without the member that says what it is.
func withoutType(text string) (string, error) {
	var faults resource.Faults
	b := resource.NewValidator("", (*[]resource.Fault)(&faults)).Embedded(text)
	if b == nil {
		return "", faults.Err()
	}
	var tree map[string]any
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber()
	if err := in.Decode(&tree); err != nil {
		return "", err
	}
	delete(tree, "@type")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(tree)
	return out.String(), err
}
