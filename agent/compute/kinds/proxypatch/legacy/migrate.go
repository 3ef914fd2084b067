package legacy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// migrate converts ProxyTemplates to MeshProxyPatches. Only one ProxyTemplate applies to a proxy,
// whereas MeshProxyPatches are combined. Therefore exactly one of the new policies must select each
// proxy.
func migrate(in *policy.MigrateInput) policy.Migration {
	acting := successor.NewActing(in, successor.PlanOptions{Kinds: []string{proxypatch.Kind},
		SupersededBy: toolkit.SupersededByAny(in, proxypatch.Kind)})
	out := policy.Migration{Without: acting.Without}
	m := migration{in: in, applied: map[resource.Key][]*resource.Resource{}, used: map[string]bool{}}
	for _, d := range in.Index.View.Dataplanes() {
		if r := in.Index.Rules(d).LegacyProxy(kind); r != nil {
			m.applied[r.Key] = append(m.applied[r.Key], d)
		}
	}
	for _, r := range acting.Policies {
		conf, ok := r.Spec.(*resource.LegacyPolicy).Conf.(*Conf)
		if !ok {
			continue
		}
		var notes []string
		patch := conf.successor(&notes)
		var targets []selector
		why := strings.Join(append([]string{"the template changes nothing"}, notes...), "; ")
		if len(patch.AppendModifications) > 0 {
			targets, why = m.targets(r, acting.Policies, &notes)
		}
		if len(targets) == 0 {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: why})
			continue
		}
		successor.AddNote(&notes, acting.Note)
		for i := range targets {
			base := r.Name
			if len(targets) > 1 {
				base += "-" + cmp.Or(targets[i].slug, "all")
			}
			out.Policies = append(out.Policies, policy.Migrated{
				Kind: proxypatch.Kind, From: []resource.Key{r.Key},
				Name:  in.FreeName(policy.ClipName(base, policy.MaxName), m.used, proxypatch.Kind),
				Notes: slices.Clone(notes), Spec: &resource.Policy{TargetRef: &targets[i].ref, Default: patch},
			})
		}
	}
	return out
}

// migration knows the dataplanes to which each ProxyTemplate applies.
type migration struct {
	in      *policy.MigrateInput
	applied map[resource.Key][]*resource.Resource
	used    map[string]bool // names of new policies
}

// selector selects a group of dataplanes.
type selector struct {
	ref  resource.TargetRef
	slug string
}

// targets returns targetRefs that together select each dataplane of a template once, and no other:
// those of its selectors if possible, otherwise services, otherwise single dataplanes. If there are
// none it returns the reason.
func (m *migration) targets(r *resource.Resource, all []*resource.Resource, notes *[]string) ([]selector, string) {
	spec := r.Spec.(*resource.LegacyPolicy)
	dataplanes := m.applied[r.Key]
	covered := map[string]bool{}
	var out []selector
	take := func(a selector) bool {
		var names []string
		for _, d := range m.in.Index.View.Dataplanes() {
			p := &resource.Resource{Key: resource.Key{Kind: proxypatch.Kind, Mesh: r.Mesh, Name: r.Name},
				Spec: &resource.Policy{TargetRef: &a.ref}}
			if !m.in.Index.Select(p, d).Proxy {
				continue
			}
			if covered[d.Name] || !slices.Contains(dataplanes, d) {
				return false
			}
			names = append(names, d.Name)
		}
		for _, n := range names {
			covered[n] = true
		}
		out = append(out, a)
		return true
	}
	whole := true
	for i := range spec.Selectors {
		list, note := successor.Expand(m.in, spec.Selectors[i].Match)
		successor.AddNote(notes, note)
		for _, tags := range list {
			whole = take(selector{successor.Target(m.in.Index, tags), successor.Slug(tags)}) && whole
			m.overlaps(r, tags, all, notes)
		}
	}
	if whole {
		return out, "it has no effect because no dataplane has the required tags; delete it"
	}
	var services []string
	for _, d := range dataplanes {
		if dp, ok := d.Spec.(*resource.Dataplane); ok {
			services = append(services, m.in.Index.View.ProxyTags(dp)[resource.TagService]...)
		}
	}
	slices.Sort(services)
	for _, s := range slices.Compact(services) {
		if tags := map[string]string{resource.TagService: s}; !slices.ContainsFunc(out, func(a selector) bool {
			return a.slug == successor.Slug(tags)
		}) {
			take(selector{successor.Target(m.in.Index, tags), successor.Slug(tags)})
		}
	}
	for _, d := range dataplanes {
		if !covered[d.Name] {
			take(selector{resource.TargetRef{Kind: "Dataplane", Name: d.Name}, "on-" + d.Name})
		}
	}
	if len(out) > 0 {
		successor.AddNote(notes, "patches are combined, so each dataplane is selected once: the policies select the "+
			"dataplanes to which the template applies today, and new dataplanes need another policy")
	}
	return out, "it has no effect because other templates take precedence on every dataplane that it selects; delete it"
}

// overlaps notes templates that can select the same dataplane.
func (m *migration) overlaps(r *resource.Resource, tags map[string]string, all []*resource.Resource, notes *[]string) {
	for _, o := range all {
		if o == r {
			continue
		}
		for _, s := range o.Spec.(*resource.LegacyPolicy).Selectors {
			list, _ := successor.Expand(m.in, s.Match)
			if slices.ContainsFunc(list, func(t map[string]string) bool { return successor.Meet(tags, t) }) {
				successor.AddNote(notes,
					fmt.Sprintf("%s can select the same dataplanes: only one template applies to a dataplane, "+
						"whereas patches are combined", o.Key))
			}
		}
	}
}

// successor converts a template to modifications. It notes parts without an equivalent.
func (c *Conf) successor(notes *[]string) *proxypatch.Conf {
	out := &proxypatch.Conf{}
	add := func(m proxypatch.Modification) { out.AppendModifications = append(out.AppendModifications, m) }
	whole := func(t proxypatch.Target, op proxypatch.Operation, value *secret.EnvoyText) {
		if t == proxypatch.Clusters {
			add(proxypatch.Modification{
				Cluster: (&proxypatch.BaseMod[proxypatch.ClusterMatch]{Operation: op, Value: value}).Mod(),
			})
		} else {
			add(proxypatch.Modification{
				Listener: (&proxypatch.BaseMod[proxypatch.ListenerMatch]{Operation: op, Value: value}).Mod(),
			})
		}
	}
	if !slices.Contains(c.Imports, defaultProfile) { // without the generated config
		whole(proxypatch.Listeners, proxypatch.Remove, nil)
		whole(proxypatch.Clusters, proxypatch.Remove, nil)
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.change == nil {
			continue
		}
		_, target, _ := r.change.Adds()
		switch value, err := withoutType(r.Resource.Reveal()); {
		case err != nil:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] was dropped because it cannot be parsed: %v", i, err))
		case target == proxypatch.Resources:
			*notes = append(*notes,
				fmt.Sprintf("conf.resources[%d] (%s) was dropped because a MeshProxyPatch can add only clusters and listeners",
					i, r.Name))
		default:
			text := secret.NewEnvoyText(value)
			whole(target, proxypatch.Add, &text)
		}
	}
	for i := range c.Modifications {
		m := c.Modifications[i].successor()
		target, origin, name := matched(&m)
		if origin == nil || *origin == nil || **origin != originTemplate && **origin != originRaw {
			add(m)
			continue
		}
		// Added resources have one origin now, so the match uses the name.
		if name == nil {
			*notes = append(*notes, fmt.Sprintf("conf.modifications[%d] was dropped because virtual hosts that a template has "+
				"added cannot be matched by origin", i))
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
			copied := c.Modifications[i].successor()
			_, origin, name := matched(&copied)
			*origin, *name = new(proxypatch.OriginPatch), &added
			add(copied)
		}
	}
	return out
}

func (m *Modification) successor() proxypatch.Modification {
	return proxypatch.Modification{
		Cluster: m.Cluster.Mod(), Listener: m.Listener.Mod(), NetworkFilter: m.NetworkFilter.Mod(),
		HTTPFilter: m.HTTPFilter.Mod(), VirtualHost: m.VirtualHost.Mod(),
	}
}

// matched returns the target, origin, and name by which a modification matches clusters or
// listeners. Pointers are nil for fields that the match does not have.
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

// withoutType returns a resource without its @type.
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
