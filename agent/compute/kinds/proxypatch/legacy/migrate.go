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
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// migrate makes MeshProxyPatches of ProxyTemplates. Of ProxyTemplates one alone acts on a proxy,
// while MeshProxyPatches add up: so each proxy must be selected by exactly one policy of the new
// ones.
func migrate(in *policy.MigrateInput) policy.Migration {
	acting := in.Acting(policy.PlanOptions{Kinds: []string{proxypatch.Kind},
		SupersededBy: toolkit.SupersededByAny(in, proxypatch.Kind)})
	out := policy.Migration{Without: acting.Without}
	m := migration{in: in, won: map[resource.Key][]*resource.Resource{}, used: map[string]bool{}}
	for _, d := range in.Index.View.Dataplanes() {
		if r := in.Index.Rules(d).LegacyProxy(kind); r != nil {
			m.won[r.Key] = append(m.won[r.Key], d)
		}
	}
	for _, r := range acting.Policies {
		conf, ok := r.Spec.(*resource.LegacyPolicy).Conf.(*Conf)
		if !ok {
			continue
		}
		var notes []string
		patch := conf.successor(&notes)
		var targets []aim
		why := strings.Join(append([]string{"it changes nothing"}, notes...), "; ")
		if len(patch.AppendModifications) > 0 {
			targets, why = m.targets(r, acting.Policies, &notes)
		}
		if len(targets) == 0 {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: why})
			continue
		}
		policy.AddNote(&notes, acting.Note)
		for i := range targets {
			base := r.Name
			if len(targets) > 1 {
				base += "-" + cmp.Or(targets[i].slug, "all")
			}
			out.Policies = append(out.Policies, policy.Migrated{
				Kind: proxypatch.Kind, Name: in.FreeName(proxypatch.Kind, base, m.used), From: []resource.Key{r.Key},
				Notes: slices.Clone(notes), Spec: &resource.Policy{TargetRef: &targets[i].ref, Default: patch},
			})
		}
	}
	return out
}

// migration knows which ProxyTemplate acts on which dataplanes.
type migration struct {
	in   *policy.MigrateInput
	won  map[resource.Key][]*resource.Resource
	used map[string]bool // names
}

// aim is a group of dataplanes.
type aim struct {
	ref  resource.TargetRef
	slug string
}

// targets returns targetRefs that select each dataplane on which a template acts once, and no
// other: those of its selectors where these do, else services, else single dataplanes. Without any
// it says why.
func (m *migration) targets(r *resource.Resource, all []*resource.Resource, notes *[]string) ([]aim, string) {
	spec := r.Spec.(*resource.LegacyPolicy)
	won := m.won[r.Key]
	covered := map[string]bool{}
	var out []aim
	take := func(a aim) bool {
		var names []string
		for _, d := range m.in.Index.View.Dataplanes() {
			p := &resource.Resource{Key: resource.Key{Kind: proxypatch.Kind, Mesh: r.Mesh, Name: r.Name},
				Spec: &resource.Policy{TargetRef: &a.ref}}
			if !m.in.Index.Select(p, d).Proxy {
				continue
			}
			if covered[d.Name] || !slices.Contains(won, d) {
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
		list, note := m.in.Expand(spec.Selectors[i].Match)
		policy.AddNote(notes, note)
		for _, tags := range list {
			whole = take(aim{m.in.Index.Target(tags), policy.Slug(tags)}) && whole
			m.overlaps(r, tags, all, notes)
		}
	}
	if whole {
		return out, "it has no effect: no dataplane has the tags that it wants; delete it"
	}
	var services []string
	for _, d := range won {
		if dp, ok := d.Spec.(*resource.Dataplane); ok {
			services = append(services, m.in.Index.View.ProxyTags(dp)[resource.TagService]...)
		}
	}
	slices.Sort(services)
	for _, s := range slices.Compact(services) {
		if tags := map[string]string{resource.TagService: s}; !slices.ContainsFunc(out, func(a aim) bool {
			return a.slug == policy.Slug(tags)
		}) {
			take(aim{m.in.Index.Target(tags), policy.Slug(tags)})
		}
	}
	for _, d := range won {
		if !covered[d.Name] {
			take(aim{resource.TargetRef{Kind: "Dataplane", Name: d.Name}, "on-" + d.Name})
		}
	}
	if len(out) > 0 {
		policy.AddNote(notes, "patches add up, so each dataplane is selected once: the policies are about the dataplanes "+
			"on which the template acts today, and others that come later need their own")
	}
	return out, "it has no effect: other templates take precedence over it on every dataplane that it selects; delete it"
}

// overlaps notes templates that can select the same dataplane.
func (m *migration) overlaps(r *resource.Resource, tags map[string]string, all []*resource.Resource, notes *[]string) {
	for _, o := range all {
		if o == r {
			continue
		}
		for _, s := range o.Spec.(*resource.LegacyPolicy).Selectors {
			list, _ := m.in.Expand(s.Match)
			if slices.ContainsFunc(list, func(t map[string]string) bool { return policy.Meet(tags, t) }) {
				policy.AddNote(notes,
					fmt.Sprintf("%s can select the same dataplanes: of templates one acts, patches add up", o.Key))
			}
		}
	}
}

// successor says what a template says, as modifications. What cannot be said is noted.
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
		switch value, err := withoutType(r.Resource.Reveal()); {
		case err != nil:
			*notes = append(*notes, fmt.Sprintf("conf.resources[%d] cannot be read: %v: it is left out", i, err))
		case target == proxypatch.Resources:
			*notes = append(*notes,
				fmt.Sprintf("conf.resources[%d] (%s): a MeshProxyPatch adds clusters and listeners alone: it is left out",
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
		// What templates have added has one origin now, so it goes by its name.
		if name == nil {
			*notes = append(*notes, fmt.Sprintf("conf.modifications[%d]: virtual hosts that a template has added cannot be "+
				"told by their origin: it is left out", i))
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
			*origin, *name = new(proxypatch.OriginPatch), &added
			add(with)
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

// matched returns by which origin and name a modification matches clusters, or listeners for what
// is in them: nil for what it cannot match by.
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
