package change

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Finding is something that the check has to say about a change, told once for all proxies on which
// it is alike. Lists are never null.
type Finding struct {
	Severity string `json:"severity"` // reject, unusable or warning
	Rule     int    `json:"rule"`     // its number in package finding; 0 with By "envoy"
	Title    string `json:"title"`    // what holds of a good config
	By       string `json:"by"`       // FoundByCheck or FoundByEnvoy
	finding.Place
	Message string          `json:"message"` // the value, the bound and the remedy
	Others  []finding.Place `json:"others"`  // what has a part in it
	// Proxies are the first of those on which it is found, as MESH/NAME; Total is how many there are.
	// Type, name and message are those of the first.
	Proxies []string `json:"proxies"`
	Total   int      `json:"total"`
	Causes  []Cause  `json:"causes"` // empty where none was found
}

// Who has found something.
const (
	FoundByCheck = "check"
	FoundByEnvoy = "envoy" // the real one
)

// RuleOfEnvoy is the number of the rule of findings that an Envoy has reported.
const RuleOfEnvoy = -1

// Cause is a resource without which something would not be found.
type Cause struct {
	explain.Ref
	Field  string `json:"field,omitempty"` // the innermost that holds all of it
	Change bool   `json:"change"`          // it is part of the change
}

// Blocks reports whether Envoy refuses the resource or cannot use it.
func (f *Finding) Blocks() bool { return f.Severity != finding.Warning.String() }

// String is the finding in one line, without its causes.
func (f *Finding) String() string {
	var b strings.Builder
	if f.Type != "" {
		b.WriteString(f.Type[strings.LastIndexByte(f.Type, '.')+1:] + " " + f.Resource)
		if f.Pointer != "" {
			b.WriteString(" at " + f.Pointer)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	if f.By == FoundByEnvoy {
		b.WriteString(" (said by Envoy)")
	} else {
		fmt.Fprintf(&b, " (rule %d: %s)", f.Rule, f.Title)
	}
	b.WriteString(", on " + strings.Join(f.Proxies, ", "))
	if more := f.Total - len(f.Proxies); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Reason is the finding in one line with its causes after the first; place says where one of these
// is, "" for nothing.
func (f *Finding) Reason(place func(explain.Ref) string) string {
	out, lead := f.String(), "; together with "
	for _, c := range f.Causes[min(len(f.Causes), 1):] {
		out += lead + c.Ref.String()
		if lead = ", "; c.Field != "" {
			out += " " + c.Field
		}
		out += place(c.Ref)
	}
	return out
}

// Parts returns the first cause of the finding, the field of it, and the reason.
func (f *Finding) Parts() (cause, field, reason string) {
	reason = f.Reason(func(explain.Ref) string { return "" })
	if len(f.Causes) == 0 {
		return "", "", reason
	}
	return f.Causes[0].Ref.String(), f.Causes[0].Field, reason
}

// Line is the finding in one line with its causes.
func (f *Finding) Line() string { return f.Intro("") }

// Intro is the line with something more before what was found.
func (f *Finding) Intro(intro string) string {
	who, field, reason := f.Parts()
	if field != "" {
		who += " " + field
	}
	if who != "" {
		who += ": "
	}
	return who + intro + reason
}

// maxFindingProxies bounds the proxies that a finding names.
const maxFindingProxies = 3

// group is what is found alike on several proxies.
type group struct {
	finding Finding
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
func Told(f *finding.Finding) Finding {
	out := Finding{Severity: f.Severity.String(), Rule: f.Rule, By: FoundByCheck, Place: f.Place, Message: f.Message,
		Others: append([]finding.Place{}, f.Others...), Proxies: []string{}, Causes: []Cause{}}
	if f.Rule == RuleOfEnvoy {
		out.Rule, out.By = 0, FoundByEnvoy
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
