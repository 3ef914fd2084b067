package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Standing is what there is to be said about one proxy as it stands, whether a client takes its
// config or not.
type Standing struct {
	Warnings []mesh.Warning    // what was left out or is not applied
	Findings []finding.Finding // of the check; lint is none
	Failed   error             // no config can be made
}

// Looker looks at proxies, one after the other. What it remembers saves work and changes no result.
type Looker struct {
	memo    *generate.Memo
	checker check.Checker
}

// NewLooker returns one that remembers nothing yet.
func NewLooker() *Looker { return &Looker{memo: generate.NewMemo()} }

// Dataplane looks at the Envoy of a dataplane; at nothing where the mesh has none of that name.
func (l *Looker) Dataplane(m *generate.Mesh, name string) Standing {
	return l.look(generate.ProxyID{Mesh: m.View.Name, Name: name, Flavor: node.FlavorEnvoy}.In(m, nil, l.memo))
}

// Zone looks at a proxy at the border of a zone.
func (l *Looker) Zone(in generate.ZoneInput) Standing {
	return l.look(generate.GenerateZone(in, nil, l.memo))
}

func (l *Looker) look(p *generate.Proxy, err error) Standing {
	if err != nil || p == nil {
		return Standing{Failed: err}
	}
	found := slices.DeleteFunc(p.Check(&l.checker, nil), func(f finding.Finding) bool {
		return f.Severity > finding.Warning
	})
	return Standing{Warnings: p.Warnings, Findings: found}
}

// Alike is the same for findings about proxies of a mesh that differ in addresses alone.
func Alike(mesh string, f *finding.Finding) string {
	kind, role := f.Type[strings.LastIndexByte(f.Type, '.')+1:], f.Resource
	// inbound:10.0.0.1:80 is inbound:80 of another proxy.
	first, _, _ := strings.Cut(role, ":")
	last := strings.LastIndexByte(role, ':')
	alike := f.Message
	if last > len(first) {
		alike = strings.ReplaceAll(alike, role[len(first)+1:last], "")
		role = first + role[last:]
	}
	return fmt.Sprintf("%s\x00%d\x00%s\x00%s\x00%s\x00%s", mesh, f.Rule, kind, role, f.Pointer, alike)
}

// Found groups findings that are alike on some proxies.
type Found struct {
	by map[string]*found
}

type found struct {
	who      resource.Key // the first of them
	severity string
	reason   string
	more     int // of them
}

// Add takes note of a finding about a proxy: of what is a warning, or of what blocks a proxy that
// no client asks for.
func (l *Found) Add(who resource.Key, f *finding.Finding) {
	id := Alike(who.Mesh, f)
	if s := l.by[id]; s != nil {
		if s.who != who { // both flavors of a proxy
			s.more++
		}
		return
	}
	if l.by == nil {
		l.by = map[string]*found{}
	}
	s := &found{who: who, severity: api.SeverityWarning,
		reason: f.Type[strings.LastIndexByte(f.Type, '.')+1:] + " " + f.Resource + generate.FindingText(f)}
	if f.Severity != finding.Warning {
		s.severity, s.reason = api.SeverityError, "would be withheld: "+s.reason
	}
	l.by[id] = s
}

// Has reports whether a finding like that was added; nil has none.
func (l *Found) Has(who resource.Key, f *finding.Finding) bool {
	return l != nil && l.by[Alike(who.Mesh, f)] != nil
}

// Problems tells what was added, what is alike once, and at most so many.
func (l *Found) Problems(most int) []api.Problem {
	var out []api.Problem
	ids := slices.Sorted(maps.Keys(l.by))
	for _, id := range ids[:min(len(ids), most)] {
		s := l.by[id]
		reason := s.reason
		if s.more > 0 {
			reason += "; the same on " + plural.Count(s.more, "more proxy")
		}
		out = append(out, api.Problem{Resource: s.who.String(), Severity: s.severity, Reason: reason})
	}
	if more := len(ids) - most; more > 0 {
		out = append(out, api.Problem{Resource: l.by[ids[most]].who.String(), Severity: api.SeverityWarning,
			Reason: plural.Count(more, "more warning") + ", for this and other proxies"})
	}
	return out
}
