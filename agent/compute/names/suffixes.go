package names

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
	"github.com/nearside-mesh/nearside/dns/table"
)

// clusterDomain is the domain of Kubernetes. A generator with this suffix must not hide its names.
const clusterDomain = "cluster.local"

// multicastDomain is a special-use name (RFC 6762) below which many networks have domains anyway,
// which their name servers do not know as a part of it.
const multicastDomain = "local"

// Evidence is what upstreams answered to the question for the SOA record of a suffix.
type Evidence int

// Kinds of evidence.
const (
	NotAsked Evidence = iota
	NoAnswer          // no upstream answered
	HasZone           // the suffix is a zone
	HasName           // the suffix exists in a zone, so names below it may exist too
	HasNone           // the suffix does not exist, so no name below it exists (RFC 8020)
)

// MaxAsked is the maximum number of suffixes that depend on answers of upstreams. Further ones are
// not owned.
const MaxAsked = 64

// own determines which suffixes the meshes own.
func (t *Table) own(meshes []Mesh) {
	owned := map[string]bool{}
	for _, s := range t.options.Suffixes {
		if name := suffix.Fold(s); !owned[name] {
			owned[name] = true
			t.Suffixes = append(t.Suffixes, Suffix{Name: name, Origin: OriginConfig})
		}
	}
	var ranges []Suffix
	for _, p := range t.options.Ranges {
		for _, name := range table.ReverseSuffixes(p) {
			if !owned[name] {
				owned[name] = true
				ranges = append(ranges, Suffix{Name: name, Origin: OriginRange})
			}
		}
	}
	seen := map[string]bool{}
	for i := range meshes {
		for r, spec := range resource.Specs[*resource.HostnameGenerator](meshes[i].View.Generators()) {
			name := suffix.OfTemplate(spec.Template)
			if name == "" || owned[name] || seen[name] {
				continue
			}
			seen[name] = true
			x := Suffix{Name: name, Origin: OriginGenerator, Generator: r.Key}
			if t.decide(&x) {
				t.Suffixes = append(t.Suffixes, x)
			} else {
				t.Unowned = append(t.Unowned, x)
			}
		}
	}
	byName := func(a, b Suffix) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Generator.Compare(b.Generator))
	}
	slices.SortFunc(t.Suffixes, byName)
	slices.SortFunc(t.Unowned, byName)
	t.Suffixes = append(t.Suffixes, ranges...)
}

// decide decides whether the suffix of a generator is owned. A suffix is owned only if no other
// server can have names below it.
func (t *Table) decide(x *Suffix) (owned bool) {
	special := suffix.SpecialUse(x.Name)
	listed, forwarded := within(x.Name, t.options.Suffixes), within(x.Name, t.options.Forwarded)
	local, _ := table.LocalSuffix(x.Name)
	switch {
	case !t.options.Generators:
		x.Reason = "dns.generatorSuffixes is false"
	case listed != "" && len(listed) >= len(forwarded):
		owned, x.Reason = true, "dns.suffixes lists "+listed
	case forwarded != "":
		x.Reason = "dns.forward lists " + forwarded
	case local != "":
		owned, x.Reason = true, "names below "+local+" never leave the host"
	case within(x.Name, []string{clusterDomain}) != "":
		x.Reason = "Kubernetes uses this suffix for its names: list it in dns.suffixes if the names are yours"
	case suffix.Public(x.Name):
		x.Reason = "it is a public suffix, below which others own the names: use another suffix in the template"
	case x.Name == multicastDomain:
		x.Reason = "networks have domains below it, such as corp.local: list it in dns.suffixes if it is yours"
	case special == "" && !strings.Contains(x.Name, "."):
		x.Reason = "a suffix of one label may be a domain of the internet: list it in dns.suffixes if it is yours"
	case t.asked == MaxAsked:
		x.Reason = fmt.Sprintf("upstreams are asked about at most %d suffixes: list it in dns.suffixes if it is yours",
			MaxAsked)
	default:
		t.asked++
		x.Asked = true
		owned, x.Reason = weigh(t.options.Evidence, x.Name, special)
	}
	return owned
}

// weigh decides by the answers of upstreams, which are nil if upstreams are never asked. A
// special-use name is not a domain of the internet, so it is also owned without an answer.
func weigh(answers map[string]Evidence, name, special string) (owned bool, reason string) {
	const unless = "; list it in dns.suffixes if the names are yours"
	switch e := answers[name]; {
	case e == HasZone:
		return false, "an upstream has a zone with this name" + unless
	case e == HasName:
		return false, "an upstream has this name, so it may have names below it" + unless
	case e != NotAsked && existsBelow(answers, name) != "":
		return false, "an upstream has a name below it: " + existsBelow(answers, name) + unless
	case e == HasNone:
		return true, "upstreams answered that the name does not exist"
	case special != "" && (e == NoAnswer || answers == nil):
		return true, "it is a special-use name: " + special
	case answers == nil:
		return false, "only an agent asks upstreams whether the name exists" + unless
	case e == NoAnswer:
		return false, "no upstream answered whether the name exists" + unless
	}
	return false, "upstreams have not answered yet whether the name exists"
}

// existsBelow returns a name below a suffix that an upstream has, or "". Upstreams that serve such
// a name only for one network do not know the names above it.
func existsBelow(answers map[string]Evidence, suffix string) (first string) {
	for name, e := range answers {
		if (e == HasZone || e == HasName) && strings.HasSuffix(name, "."+suffix) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// within returns the longest of some suffixes that a name is equal to or below, or "".
func within(name string, suffixes []string) (longest string) {
	for _, s := range suffixes {
		s = suffix.Fold(s)
		if below, ok := strings.CutSuffix(name, s); ok && (below == "" || strings.HasSuffix(below, ".")) &&
			len(s) > len(longest) {
			longest = s
		}
	}
	return longest
}

// forwarded returns the suffixes below which names are forwarded, although a shorter suffix may be
// owned.
func (t *Table) forwarded() []string {
	out := slices.Clone(t.options.Forwarded)
	for i := range t.Unowned {
		out = append(out, t.Unowned[i].Name)
	}
	return out
}

// Asked returns the suffixes that depend on answers of upstreams, sorted.
func (t *Table) Asked() (out []string) {
	for _, list := range [...][]Suffix{t.Suffixes, t.Unowned} {
		for i := range list {
			if list[i].Asked {
				out = append(out, list[i].Name)
			}
		}
	}
	slices.Sort(out)
	return out
}
