package change

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// RuleOfEnvoy is the number of the rule of findings that an Envoy has reported.
const RuleOfEnvoy = -1

// maxFindingProxies bounds the proxies that a finding names.
const maxFindingProxies = 3

// group is what is found alike on several proxies.
type group struct {
	finding api.Finding
	found   finding.Finding // on the first
	mesh    *meshStates
	id      generate.ProxyID
	known   bool
}

// add groups findings of a proxy.
func (v *verifier) add(m *meshStates, id generate.ProxyID, list []finding.Finding, known bool) {
	mask := maskOf(ownNames(m.to, id.Name))
	for i := range list {
		f := &list[i]
		key := fmt.Sprintf("%s\x00%t\x00%s", id.Mesh, known, alikeFinding(f, mask))
		g := v.byKey[key]
		if g == nil {
			if len(v.groups) >= maxGroups {
				v.out.More++
				continue
			}
			g = &group{finding: Told(f), found: *f, mesh: m, id: id, known: known}
			v.byKey[key] = g
			v.groups = append(v.groups, g)
		}
		if name := id.Mesh + "/" + id.Name; len(g.finding.Proxies) < maxFindingProxies &&
			!slices.Contains(g.finding.Proxies, name) {
			g.finding.Proxies = append(g.finding.Proxies, name)
		}
		g.finding.Total++
	}
}

// maxGroups bounds the findings that are kept while proxies are looked at.
const maxGroups = 5000

// Told is a finding of package load as it is told, without proxies and causes.
func Told(f *finding.Finding) api.Finding {
	out := api.Finding{Severity: f.Severity.String(), Rule: f.Rule, By: api.FoundByCheck, Place: f.Place,
		Message: f.Message,
		Others:  append([]finding.Place{}, f.Others...), Proxies: []string{}, Causes: []api.Cause{}}
	if f.Rule == RuleOfEnvoy {
		out.Rule, out.By = 0, api.FoundByEnvoy
		return out
	}
	out.Title = finding.Title(f.Rule)
	return out
}

// maskOf replaces the own names of a proxy, so that what is said of it is the same on others.
func maskOf(own []string) *strings.Replacer {
	var pairs []string
	for i, name := range own {
		pairs = append(pairs, name, fmt.Sprintf("\x01%d", i))
	}
	return strings.NewReplacer(pairs...)
}

// alikeFinding is the same for a finding on other proxies.
func alikeFinding(f *finding.Finding, mask *strings.Replacer) string {
	return fmt.Sprintf("%d\x00%d\x00%s\x00%s\x00%s\x00%s", f.Rule, f.Severity, f.Type, mask.Replace(f.Resource), f.Pointer,
		mask.Replace(f.Message))
}

// fresh returns the findings of after that are not among those before: first the same is looked
// for, then the same in another place of the resource, which an item more in a list may have moved,
// then the same but for numbers.
func fresh(before, after []finding.Finding) []finding.Finding {
	numbers := regexp.MustCompile("[0-9]+")
	words := func(f *finding.Finding) string {
		return fmt.Sprintf("%d\x00%d\x00%s\x00%s\x00", f.Rule, f.Severity, f.Type, f.Resource)
	}
	for _, key := range []func(*finding.Finding) string{
		func(f *finding.Finding) string { return words(f) + f.Pointer + "\x00" + f.Message },
		func(f *finding.Finding) string { return words(f) + f.Message },
		func(f *finding.Finding) string { return words(f) + numbers.ReplaceAllString(f.Message, "#") },
	} {
		there := map[string]int{}
		for i := range before {
			there[key(&before[i])]++
		}
		taken := map[string]int{}
		after = slices.DeleteFunc(slices.Clone(after), func(f finding.Finding) bool {
			k := key(&f)
			taken[k]++
			return taken[k] <= there[k]
		})
		before = slices.DeleteFunc(slices.Clone(before), func(f finding.Finding) bool {
			k := key(&f)
			taken[k]--
			return taken[k] >= 0
		})
	}
	return after
}

// newcomer is a proxy that the change brings, with what is to be said about it.
type newcomer struct {
	id    generate.ProxyID
	mesh  *meshStates
	found []finding.Finding
}

// sortNewcomers tells what is new with newcomers from what other proxies of their mesh have
// already: one more replica of a service is not the cause of what is wrong with all.
func (v *verifier) sortNewcomers() error {
	known := map[string]map[string]bool{} // by mesh
	for _, n := range v.newcomers {
		if known[n.id.Mesh] == nil {
			var err error
			if known[n.id.Mesh], err = v.knownIn(n.id.Mesh, n.mesh); err != nil {
				return err
			}
		}
		mask := maskOf(ownNames(n.mesh.to, n.id.Name))
		var was, is []finding.Finding
		for i := range n.found {
			if known[n.id.Mesh][alikeFinding(&n.found[i], mask)] {
				was = append(was, n.found[i])
			} else {
				is = append(is, n.found[i])
			}
		}
		v.add(n.mesh, n.id, was, true)
		v.add(n.mesh, n.id, is, false)
	}
	return nil
}

// knownIn is what there is to be said about the proxies of a mesh before the change.
func (v *verifier) knownIn(name string, m *meshStates) (map[string]bool, error) {
	out := map[string]bool{}
	if m.from == nil {
		return out, nil
	}
	var of []*proxyStates
	for _, id := range v.proxies {
		if id.Mesh == name {
			x := v.states.of(id, m)
			x.verified = &verifiedProxy{}
			of = append(of, x)
		}
	}
	for part := range slices.Chunk(of, batch*len(v.crew)) {
		err := v.each(len(part), func(w *worker, i int) {
			if v.ctx.Err() == nil {
				part[i].verified.found = v.findingsBefore(w, part[i])
			}
		})
		if err != nil {
			return nil, err
		}
		for i, x := range part {
			mask := maskOf(ownNames(m.from, x.Name))
			for j := range x.verified.found {
				out[alikeFinding(&x.verified.found[j], mask)] = true
			}
			for _, n := range x.verified.notes {
				v.note(n)
			}
			*part[i] = proxyStates{} // its configs are of no use any more
		}
	}
	return out, nil
}

// finish finds the causes and sorts what is told.
func (v *verifier) finish() error {
	if err := v.warnOfOthers(); err != nil {
		return err
	}
	if err := v.sortNewcomers(); err != nil {
		return err
	}
	slices.SortStableFunc(v.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.found.Severity, b.found.Severity), cmp.Compare(a.id.Mesh, b.id.Mesh),
			cmp.Compare(a.found.Type, b.found.Type), cmp.Compare(a.found.Resource, b.found.Resource),
			cmp.Compare(a.found.Rule, b.found.Rule), cmp.Compare(a.found.Pointer, b.found.Pointer))
	})
	for _, g := range v.groups {
		switch {
		case g.known && len(v.out.Known) < v.MaxFindings:
			v.out.Known = append(v.out.Known, g.finding)
		case !g.known && len(v.out.Findings) < v.MaxFindings:
			g.finding.Causes = v.causes(g)
			v.out.Findings = append(v.out.Findings, g.finding)
		default:
			v.out.More++
		}
	}
	return nil
}
