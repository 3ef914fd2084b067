package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kinds whose policies write access logs.
const (
	kindAccessLog  = "MeshAccessLog"
	kindTrafficLog = "TrafficLog"
)

// losing are the log files of a config whose Envoy loses lines now. An Envoy acknowledges a config
// if it can open the files; its counters of failed writes do not name a file.
type losing struct {
	api.ProxyCounts
	files []string // that the Envoy opens, sorted
	fifos int      // of files: FIFOs, which the agent reads
}

// losingOf returns the log files of a client whose Envoy loses lines now, or nil.
func losingOf(last *Result, id node.Key, counts map[string]api.ProxyCounts) *losing {
	n := counts[id.ID]
	if last == nil || !n.Failing || last.Published[id] == nil {
		return nil
	}
	p := last.Published[id]
	out := &losing{ProxyCounts: n, files: (&check.Checker{}).Demands(p.Snapshot()).Files}
	for i := range p.Sealed.Pipes {
		if slices.Contains(out.files, p.Sealed.Pipes[i].Path) {
			out.fifos++
		}
	}
	return out
}

// by returns those of the files that a policy names, directly or as a backend of its mesh.
func (l *losing) by(m *generate.Mesh, r *resource.Resource) (out []string) {
	if r.Kind != kindAccessLog && r.Kind != kindTrafficLog || r.Shadow() {
		return nil
	}
	var document any
	if text, err := resource.Marshal(r); err != nil || json.Unmarshal(text, &document) != nil {
		return nil
	}
	named := map[string]bool{}
	addTexts(named, document)
	if log := m.View.Spec.Logging; log != nil {
		for i := range log.Backends {
			if b := &log.Backends[i]; b.Conf != nil &&
				(named[b.Name] || r.Kind == kindTrafficLog && b.Name == log.DefaultBackend) {
				named[b.Conf.Path] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(l.files), func(path string) bool { return !named[path] })
}

// addTexts adds all strings of a document.
func addTexts(to map[string]bool, document any) {
	switch v := document.(type) {
	case string:
		to[v] = true
	case []any:
		for _, x := range v {
			addTexts(to, x)
		}
	case map[string]any:
		for _, x := range v {
			addTexts(to, x)
		}
	}
}

// attributed reports whether the Envoy has no other log files than those, so that the failed writes
// are writes to them.
func (l *losing) attributed(files []string) bool { return len(files) == len(l.files) && l.fifos == 0 }

// counters describes the counters of the Envoy.
func (l *losing) counters() string {
	return fmt.Sprintf("filesystem.write_failed is %d and filesystem.reopen_failed is %d", l.WritesFailed,
		l.ReopensFailed)
}

func quoted(files []string) string {
	var out []string
	for _, f := range files {
		out = append(out, clip.Value(f))
	}
	return strings.Join(out, ", ")
}

// losing records that the Envoy of a proxy loses lines of the subject. It reports whether they are
// certainly lines of the subject; otherwise it adds a warning.
func (x *situation) losing(a *api.Applied, sub *subject, p *rollout.Progress) bool {
	if sub.current == nil || sub.key.Kind != kindAccessLog && sub.key.Kind != kindTrafficLog || x.counts == nil {
		return false
	}
	l := losingOf(x.last, p.Node, x.counts())
	if l == nil || x.last.Meshes[p.Mesh] == nil {
		return false
	}
	files := l.by(x.last.Meshes[p.Mesh], sub.current)
	switch {
	case len(files) == 0:
		return false
	case l.attributed(files):
		x.reject(a, &draft.Rejection{Mesh: p.Mesh, Name: p.Name, By: api.HeldByProxy,
			ID: draft.ResourceID{TypeURL: accessLogType, Name: "file " + quoted(files)},
			Reason: "the Envoy has opened the file, but writes to it fail and lines are lost: " + l.counters() +
				"; free disk space, or fix the directory"})
		return true
	case len(a.Warnings) < x.limit:
		a.Warnings = append(a.Warnings, fmt.Sprintf("the Envoy of %s/%s loses lines of an access log: %s. The counters "+
			"do not say of which of %s; this policy writes %s", p.Mesh, p.Name, l.counters(),
			plural.Count(len(l.files), "file"), quoted(files)))
	}
	return false
}

// Losing returns the policies whose access logs lose all lines on a connected proxy, because its
// Envoy cannot write the file.
func (t *Tracker) Losing() map[resource.Key]bool {
	out := map[resource.Key]bool{}
	if last := t.Last(); last != nil && t.Parts.Counts != nil {
		counts := t.Parts.Counts()
		for id := range last.Published {
			ref, err := node.ParseRef(id.ID)
			if err != nil {
				continue
			}
			t.eachLosing(last, ref, counts, func(r *resource.Resource, _ []string, certain bool) {
				if certain {
					out[r.Key] = true
				}
			})
		}
	}
	return out
}

// eachLosing calls f for each policy of a proxy with files whose lines its Envoy may lose now.
func (t *Tracker) eachLosing(last *Result, ref node.Ref, counts map[string]api.ProxyCounts,
	f func(r *resource.Resource, files []string, certain bool)) {
	l := losingOf(last, node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy}, counts)
	m := last.Meshes[ref.Mesh]
	if l == nil || m == nil || m.Policies == nil || m.View.Dataplane(ref.Name) == nil {
		return
	}
	for _, kind := range []string{kindAccessLog, kindTrafficLog} {
		for _, r := range m.Policies.Policies(kind) {
			if files := l.by(m, r); len(files) > 0 && Selects(m, r, m.View.Dataplane(ref.Name)) {
				f(r, files, l.attributed(files))
			}
		}
	}
}

// lostProblems returns the proxies whose Envoys have lost lines, with the policies that lose some
// now.
func (t *Tracker) lostProblems(_ context.Context, f *Facts) []api.Problem {
	out := LostLines(f.Proxies)
	if len(out) == 0 || f.Last == nil || t.Parts.Counts == nil {
		return out
	}
	counts := t.Parts.Counts()
	for i := range out {
		k := keyOf(out[i].Resource)
		t.eachLosing(f.Last, node.Ref{Mesh: k.Mesh, Name: k.Name}, counts,
			func(r *resource.Resource, files []string, certain bool) {
				may := "may lose lines"
				if certain {
					may = "loses lines"
				}
				out[i].Reason += fmt.Sprintf("; %s %s in %s now", r.Key, may, quoted(files))
			})
	}
	return out
}

// logProblems returns the losses of access logs that the agent sees.
func (t *Tracker) logProblems(context.Context, *Facts) []api.Problem {
	if t.Parts.Logs == nil {
		return nil
	}
	return t.Parts.Logs.Problems()
}
