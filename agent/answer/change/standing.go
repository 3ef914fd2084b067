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

// Standing holds the current problems of one proxy, whether or not a client is connected.
type Standing struct {
	Warnings []mesh.Warning    // about omitted parts and settings without effect
	Findings []finding.Finding // of the check, without lint
	Failed   error             // why the config cannot be generated
}

// Looker examines proxies one after the other. Its caches save work and never change a result.
type Looker struct {
	memo    *generate.Memo
	checker check.Checker
}

// NewLooker returns a Looker with empty caches.
func NewLooker() *Looker { return &Looker{memo: generate.NewMemo()} }

// Dataplane examines the Envoy of a dataplane. It returns the zero value if the mesh has no such
// dataplane.
func (l *Looker) Dataplane(m *generate.Mesh, name string) Standing {
	return l.look(generate.ProxyID{Mesh: m.View.Name, Name: name, Flavor: node.FlavorEnvoy}.In(m, nil, l.memo))
}

// Zone examines a zone proxy.
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

// Class returns a key that is equal for findings about proxies of a mesh that differ only in
// addresses.
func Class(mesh string, f *finding.Finding) string {
	kind, role := f.Type[strings.LastIndexByte(f.Type, '.')+1:], f.Resource
	// inbound:10.0.0.1:80 corresponds to inbound:80 of another proxy.
	first, _, _ := strings.Cut(role, ":")
	last := strings.LastIndexByte(role, ':')
	equal := f.Message
	if last > len(first) {
		equal = strings.ReplaceAll(equal, role[len(first)+1:last], "")
		role = first + role[last:]
	}
	return fmt.Sprintf("%s\x00%d\x00%s\x00%s\x00%s\x00%s", mesh, f.Rule, kind, role, f.Pointer, equal)
}

// Found groups findings that proxies share.
type Found struct {
	by map[string]*found
}

type found struct {
	who      resource.Key // the first proxy
	severity string
	reason   string
	more     int // number of further proxies
}

// Add records a finding about a proxy: a warning, or a blocking finding of a proxy without a
// client.
func (l *Found) Add(who resource.Key, f *finding.Finding) {
	id := Class(who.Mesh, f)
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

// Has reports whether an equal finding was added. It returns false if l is nil.
func (l *Found) Has(who resource.Key, f *finding.Finding) bool {
	return l != nil && l.by[Class(who.Mesh, f)] != nil
}

// Problems returns the recorded findings, shared ones once, up to a maximum number.
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
