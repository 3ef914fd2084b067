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

// RuleOfEnvoy is the rule number of findings that an Envoy reported.
const RuleOfEnvoy = -1

// maxFindingProxies is the maximum number of proxies that a finding names.
const maxFindingProxies = 3

// group is a finding that several proxies share.
type group struct {
	finding api.Finding
	found   finding.Finding // on the first proxy
	mesh    *meshStates
	id      generate.ProxyID
	known   bool
}

// add groups the findings of a proxy.
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
			g = &group{finding: ForAPI(f), found: *f, mesh: m, id: id, known: known}
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

// maxGroups is the maximum number of findings that are held during a check.
const maxGroups = 5000

// ForAPI converts a finding for the API, without proxies and causes.
func ForAPI(f *finding.Finding) api.Finding {
	out := api.Finding{Severity: f.Severity.String(), Rule: f.Rule, By: api.FoundByCheck, Position: f.Position,
		Message: f.Message,
		Others:  append([]finding.Position{}, f.Others...), Proxies: []string{}, Causes: []api.Cause{}}
	if f.Rule == RuleOfEnvoy {
		out.Rule, out.By = 0, api.FoundByEnvoy
		return out
	}
	out.Title = finding.Title(f.Rule)
	return out
}

// maskOf returns a replacer that removes the names of a proxy, so that texts are equal on other
// proxies.
func maskOf(own []string) *strings.Replacer {
	var pairs []string
	for i, name := range own {
		pairs = append(pairs, name, fmt.Sprintf("\x01%d", i))
	}
	return strings.NewReplacer(pairs...)
}

// alikeFinding returns a key that is equal for the same finding on other proxies.
func alikeFinding(f *finding.Finding, mask *strings.Replacer) string {
	return fmt.Sprintf("%d\x00%d\x00%s\x00%s\x00%s\x00%s", f.Rule, f.Severity, f.Type, mask.Replace(f.Resource), f.Pointer,
		mask.Replace(f.Message))
}

// fresh returns the findings in after that are not in before. It matches equal findings first, then
// findings at another place of the resource, because a new list item may have moved them, then
// findings that differ only in numbers.
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

// newcomer is a proxy that the change creates, with its findings.
type newcomer struct {
	id    generate.ProxyID
	mesh  *meshStates
	found []finding.Finding
}

// sortNewcomers separates the new findings of newcomers from those that other proxies of the mesh
// already have: one more replica of a service does not cause their problems.
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

// knownIn returns the findings about the proxies of a mesh before the change.
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
	for chunk := range slices.Chunk(of, batch*len(v.crew)) {
		err := v.each(len(chunk), func(w *worker, i int) {
			if v.ctx.Err() == nil {
				chunk[i].verified.found = v.findingsBefore(w, chunk[i])
			}
		})
		if err != nil {
			return nil, err
		}
		for i, x := range chunk {
			mask := maskOf(ownNames(m.from, x.Name))
			for j := range x.verified.found {
				out[alikeFinding(&x.verified.found[j], mask)] = true
			}
			for _, n := range x.verified.notes {
				v.note(n)
			}
			*chunk[i] = proxyStates{} // its configs are no longer needed
		}
	}
	return out, nil
}

// finish finds the causes and sorts the result.
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
