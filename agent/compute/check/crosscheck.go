package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// set checks the resources of a config against each other. Its maps are reused between checks.
type set struct {
	names  [envoy.NumKinds]map[string]status
	owners map[string]owner
	gone   map[string]bool // removed clusters that are already reported
	// missing is the set of extensions that Envoys of the build lack.
	build   *finding.Build
	missing *uses
	out     []finding.Finding
}

// status is the state of a resource, for references to it.
type status struct {
	checked *checked
	held    bool // withheld, and the proxy has no older form
}

// owner is the listener that uses an address.
type owner struct {
	name    string
	pointer string
	leaves  bool // moves to another address
}

// sendOrder lists the kinds so that a resource is checked before those that refer to it.
var sendOrder = [...]envoy.Kind{envoy.KindSecret, envoy.KindEndpoint, envoy.KindCluster, envoy.KindRoute,
	envoy.KindListener}

func (s *set) check(c *cache, prev, next *envoy.Snapshot, facts *finding.Facts,
	all *[envoy.NumKinds][]*checked) []finding.Finding {
	s.out = nil
	s.gone = nil
	if s.missing == nil || s.build != facts.Build {
		s.build, s.missing = facts.Build, missing(facts.Build)
	}
	for _, k := range sendOrder {
		if s.names[k] == nil {
			s.names[k] = make(map[string]status, len(next[k]))
		}
		clear(s.names[k])
		before := c.before(k, prev[k], next[k], all[k])
		for i, r := range next[k] {
			s.one(k, r, before[i], prev, facts, all[k][i])
		}
		if k == envoy.KindListener {
			s.addresses(next[k], before, all[k])
		}
	}
	out := s.out
	s.out = nil
	return out
}

// one checks a resource against the kinds that are already checked.
func (s *set) one(k envoy.Kind, r *envoy.Resource, before *checked, prev *envoy.Snapshot, facts *finding.Facts,
	found *checked) {
	if k == envoy.KindSecret && facts.SecretsLater {
		s.names[k][r.Name] = status{checked: found}
		return
	}
	from := len(s.out)
	defer func() { s.bound(from) }()
	s.out = append(s.out, found.findings...)
	blocked := found.blocked
	if facts.Build == nil || !facts.Build.Version.Below(1, 37) {
		s.out = append(s.out, found.newer...)
		blocked = blocked || slices.ContainsFunc(found.newer, func(f finding.Finding) bool { return f.Severity.Blocks() })
	}
	at := finding.Position{Type: k.URL(), Resource: r.Name}
	report := func(rule int, severity finding.Severity, pointer, format string, args ...any) {
		blocked = blocked || severity.Blocks()
		p := at
		p.Pointer = pointer
		s.out = append(s.out,
			finding.Finding{Rule: rule, Severity: severity, Position: p, Message: fmt.Sprintf(format, args...)})
	}
	if _, twice := s.names[k][r.Name]; twice {
		report(kinds[k].duplicateRule, finding.Reject, "", "two resources of this type are named %q", clip.Value(r.Name))
		return
	}
	for i := range found.refs {
		if s.refer(k, &found.refs[i], at, prev, facts) {
			blocked = true
		}
	}
	if i := found.uses.first(s.missing); i >= 0 {
		report(23, finding.Reject, "", "Envoy %s has no %s (%s): run an Envoy that has it",
			facts.Build.Version, extensionList[i].name, extensionList[i].category)
	}
	for _, re := range found.regexes {
		limit := int(facts.RE2Limit)
		if limit == 0 {
			limit = 100
		}
		switch {
		case re.size > limit:
			report(58, finding.Reject, re.pointer, "the program of this regular expression has about %d instructions, "+
				"re2.max_program_size.error_level allows %d", re.size, limit)
		case re.size > limit/2:
			report(58, finding.Warning, re.pointer, "the program of this regular expression has %d instructions here, "+
				"and more in RE2: it may be above re2.max_program_size.error_level, %d", re.size, limit)
		}
	}
	if h := facts.Host; h != nil {
		for _, f := range found.files {
			if why, bad := h.Unwritable[f.path]; bad && h.Guessed {
				report(106, finding.Warning, f.pointer, "Envoy cannot open %q, unless it has another file system: %s",
					clip.Value(f.path), why)
			} else if bad {
				report(106, finding.Reject, f.pointer, "Envoy cannot open %q: %s", clip.Value(f.path), why)
			}
		}
	}
	switch k {
	case envoy.KindListener:
		bindings(found, facts, report)
		if before != nil {
			transition(before, found, report)
		}
	case envoy.KindCluster:
		if slices.Contains(facts.StaticClusters, r.Name) {
			report(91, finding.Unusable, "", "the bootstrap defines cluster %q, which cannot be replaced", clip.Value(r.Name))
		}
	}
	s.names[k][r.Name] = status{checked: found, held: blocked && before == nil}
}

// bound truncates the findings about one resource, which start at from, to the most severe ones.
func (s *set) bound(from int) {
	if len(s.out)-from > maxFindings {
		slices.SortStableFunc(s.out[from:], func(a, b finding.Finding) int { return int(a.Severity) - int(b.Severity) })
		s.out = s.out[:from+maxFindings]
	}
}

// refer checks a reference and reports whether its findings block the resource.
func (s *set) refer(k envoy.Kind, r *ref, at finding.Position, prev *envoy.Snapshot, facts *finding.Facts) bool {
	at.Pointer = r.pointer
	report := func(severity finding.Severity, format string, args ...any) bool {
		s.out = append(s.out,
			finding.Finding{Rule: r.rule, Severity: severity, Position: at, Message: fmt.Sprintf(format, args...)})
		return severity.Blocks()
	}
	switch r.kind {
	case extensionType:
		if slices.Contains(facts.Extensions, r.name) || facts.Build.Lists(strings.TrimPrefix(r.name, envoy.TypePrefix)) {
			return false
		}
		return report(r.severity, "the type %q is unknown: %s", clip.Value(r.name), r.what)
	case staticSecret:
		return report(r.severity, "the bootstrap has no secret %q: %s", clip.Value(r.name), r.what)
	case staticCluster:
		if slices.Contains(facts.StaticClusters, r.name) {
			return false
		}
		return report(r.severity, "the bootstrap has no cluster %q: %s", clip.Value(r.name), r.what)
	case envoy.KindCluster:
		if slices.Contains(facts.StaticClusters, r.name) {
			return false
		}
	}
	target, exists := s.names[r.kind][r.name]
	switch {
	case !exists:
		if r.kind == envoy.KindCluster && (r.severity.Blocks() || r.rule == 31) && !s.gone[r.name] &&
			prev.Find(envoy.KindCluster, r.name) != nil {
			if s.gone == nil {
				s.gone = map[string]bool{}
			}
			s.gone[r.name] = true
			s.out = append(s.out, finding.Finding{Rule: 90, Severity: finding.Unusable,
				Position: finding.Position{Type: envoy.KindCluster.URL(), Resource: r.name}, Others: []finding.Position{at},
				Message: fmt.Sprintf("cluster %q is removed while it is in use: %s", clip.Value(r.name), r.what)})
		}
		return report(r.severity, "%s %q does not exist: %s", kinds[r.kind].word, clip.Value(r.name), r.what)
	case target.held:
		blocks := report(r.severity, "%s %q is withheld, because Envoy could not use it: %s",
			kinds[r.kind].word, clip.Value(r.name), r.what)
		s.out[len(s.out)-1].Others = []finding.Position{{Type: r.kind.URL(), Resource: r.name}}
		return blocks
	case r.secret != "" && target.checked.secret != "" && target.checked.secret != r.secret:
		s.out = append(s.out, finding.Finding{Rule: 97, Severity: finding.Reject, Position: at,
			Message: fmt.Sprintf("secret %q is %s, but %s is expected", clip.Value(r.name), target.checked.secret, r.secret)})
		return true
	}
	return false
}

// addresses reports listeners with the same address. A listener keeps its present address while
// another form of it is pending or withheld: Envoy never moves an address to another listener
// within one update, not even in a swap.
func (s *set) addresses(list []*envoy.Resource, before, all []*checked) {
	if s.owners == nil {
		s.owners = make(map[string]owner, len(list))
	}
	clear(s.owners)
	for _, settled := range []bool{true, false} {
		for i, r := range list {
			has := cmp.Or(before[i], &checked{})
			wants := all[i].binds
			if all[i].blocked {
				wants = has.binds // the listener keeps its present form
			}
			for _, b := range wants {
				if settled == binds(has, b.address) {
					s.claim(r.Name, b)
				}
			}
			for _, b := range has.binds {
				if settled && !slices.ContainsFunc(wants, func(o bind) bool { return o.address == b.address }) &&
					s.owners[b.address].name == "" {
					s.owners[b.address] = owner{r.Name, b.pointer, true}
				}
			}
		}
	}
}

// binds reports whether a listener uses an address.
func binds(l *checked, address string) bool {
	return slices.ContainsFunc(l.binds, func(b bind) bool { return b.address == address })
}

// claim records the listener of an address, or reports that another listener has the address.
func (s *set) claim(name string, b bind) {
	if b.port == 0 && !strings.HasPrefix(b.address, "unix:") {
		return
	}
	first, taken := s.owners[b.address]
	if !taken {
		s.owners[b.address] = owner{name, b.pointer, false}
		return
	}
	if first.name == name && !first.leaves {
		return // Envoy accepts a duplicate additional address
	}
	message := fmt.Sprintf("listener %q already has the address %s: an address can have only one listener, bound or not",
		clip.Value(first.name), clip.Value(b.address))
	if first.leaves {
		message = fmt.Sprintf("listener %q releases the address %s with this change, and Envoy assigns it to another "+
			"listener only afterwards: change one listener at a time, and use a third address for a swap",
			clip.Value(first.name), clip.Value(b.address))
	}
	s.out = append(s.out, finding.Finding{Rule: 10, Severity: finding.Reject,
		Position: finding.Position{Type: envoy.KindListener.URL(), Resource: name, Pointer: b.pointer},
		Others:   []finding.Position{{Type: envoy.KindListener.URL(), Resource: first.name, Pointer: first.pointer}},
		Message:  message})
}

// bindings checks addresses against the host.
func bindings(found *checked, facts *finding.Facts, report func(int, finding.Severity, string, string, ...any)) {
	for _, b := range found.binds {
		if !b.binds || b.host == "" {
			continue
		}
		key := strings.TrimPrefix(strings.TrimPrefix(b.address, "TCP "), "UDP ")
		switch {
		case facts.NoIPv6 && strings.Contains(b.host, ":"):
			report(25, finding.Reject, b.pointer, "the host has no IPv6, so Envoy cannot bind %s", b.host)
		case b.port != 0 && b.port < uint32(facts.LowestPort):
			report(25, finding.Reject, b.pointer, "Envoy may not bind port %d: the lowest allowed port is %d",
				b.port, facts.LowestPort)
		case b.special && facts.NoTransparent:
			report(25, finding.Reject, b.pointer, "a transparent socket needs CAP_NET_ADMIN, which Envoy does not have")
		case facts.Taken[key] != "":
			report(25, finding.Reject, b.pointer, "%s is in use: %s", key, facts.Taken[key])
		}
	}
}

// transition checks the change from one form of a listener to the next.
func transition(before, after *checked, report func(int, finding.Severity, string, string, ...any)) {
	if before.socket == after.socket || before.socket == "" {
		return
	}
	a, optionsBefore, _ := strings.Cut(before.socket, " ")
	b, optionsAfter, _ := strings.Cut(after.socket, " ")
	switch {
	case a != b:
		report(11, finding.Reject, "/enableReusePort",
			"an update of a listener cannot change reuse_port (it was %s): give the listener another name", a)
	case a == "false" && optionsBefore != optionsAfter:
		report(12, finding.Reject, "/socketOptions",
			"an update of a listener cannot change socket options while reuse_port is off: give the listener another name")
	}
}

// before returns, for each resource of next, the findings of the resource with the same name in
// prev, or nil if there is none. Callers only use those of listeners, so for a changed resource of
// another kind it returns the findings of next.
func (c *cache) before(k envoy.Kind, prev, next []*envoy.Resource, all []*checked) []*checked {
	out := make([]*checked, len(next))
	for i, was := range previous(prev, next) {
		switch {
		case was == nil:
		case k == envoy.KindListener && was.Version != next[i].Version:
			out[i] = c.get(k, was)
		default:
			out[i] = all[i]
		}
	}
	return out
}

// previous returns, for each resource of next, the resource with the same name in prev, or nil. It
// merges lists that are sorted by name, which most are.
func previous(prev, next []*envoy.Resource) []*envoy.Resource {
	out := make([]*envoy.Resource, len(next))
	byName := func(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }
	if slices.IsSortedFunc(prev, byName) && slices.IsSortedFunc(next, byName) {
		j := 0
		for i, r := range next {
			for j < len(prev) && prev[j].Name < r.Name {
				j++
			}
			if j < len(prev) && prev[j].Name == r.Name {
				out[i] = prev[j]
			}
		}
		return out
	}
	names := make(map[string]*envoy.Resource, len(prev))
	for _, r := range prev {
		names[r.Name] = r
	}
	for i, r := range next {
		out[i] = names[r.Name]
	}
	return out
}
