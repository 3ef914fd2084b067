package status

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Facts is the input of the sources of problems.
type Facts struct {
	Snap    *store.Snapshot
	Last    *Result     // nil before the first pass
	Proxies []api.Proxy // all, with their clients and counters
	// Status has everything but the problems. Its lists of files and damaged resources are empty
	// for senders who may not see them.
	Status *api.Status
	Until  time.Time // when sources with long computations end
	// Unchecked is the number of disconnected proxies that a source could not check until then.
	Unchecked int
	// Unexamined is the number of policies whose effect is not known until then.
	Unexamined int
}

// sources returns the sources of problems. This is the only place that registers them. A source
// returns its problems in a stable order, and may leave Check and Command empty for the class
// [api.ClassResource] and the command of the class.
func (t *Tracker) sources() []func(context.Context, *Facts) []api.Problem {
	return []func(context.Context, *Facts) []api.Problem{
		checkProblems, damagedProblems, fileProblems, inertProblems, // problems_agent.go
		passProblems, t.rejectionProblems, t.unconnectedProblems, t.proxyProblems, refusedProblems,
		endpointProblems, t.lostProblems, orphanProblems, // problems_proxies.go
		t.logProblems,      // losing.go
		t.targetProblems,   // targets.go
		t.namesakeProblems, // problems_pool.go
		t.effectProblems,   // effects_applied.go
	}
}

// Problems returns the list of problems: the unready ones first, then errors, then warnings.
func (t *Tracker) Problems(ctx context.Context, f *Facts) []api.Problem {
	out := []api.Problem{}
	for _, source := range t.sources() {
		out = append(out, source(ctx, f)...)
	}
	named(out)
	out = withoutRepeated(out)
	slices.SortStableFunc(out, func(a, b api.Problem) int { return cmp.Compare(rank(&a), rank(&b)) })
	return out
}

// withoutRepeated drops problems that several sources return, and merges the warnings about a
// policy without effect into one: it has the first other warning as its reason if none is known,
// and the warnings that it contains are dropped.
func withoutRepeated(list []api.Problem) []api.Problem {
	lacking, seen := map[string]string{}, map[api.Problem]bool{}
	list = slices.DeleteFunc(list, func(p api.Problem) bool {
		repeated := seen[p]
		seen[p] = true
		return repeated
	})
	for i := range list {
		p := &list[i]
		if p.Check != api.ClassNoEffect {
			continue
		}
		var others []string
		for _, o := range list {
			if o.Check == api.ClassResource && o.Resource == p.Resource && o.Severity == api.SeverityWarning {
				others = append(others, o.Reason)
			}
		}
		p.Reason = effect.Because(p.Reason, others)
		lacking[p.Resource] = p.Reason
	}
	return slices.DeleteFunc(list, func(p api.Problem) bool {
		return p.Check == api.ClassResource && strings.Contains(lacking[p.Resource], p.Reason)
	})
}

// named adds the class and the command to problems without them.
func named(list []api.Problem) {
	for i := range list {
		p := &list[i]
		if p.Check = cmp.Or(p.Check, api.ClassResource); p.Check == api.ClassResource && p.Resource != "" {
			p.Command = cmp.Or(p.Command, resourceCommand(keyOf(p.Resource)))
		}
		p.Command = cmp.Or(p.Command, api.CommandOf(p.Check))
	}
}

// resourceCommand returns the command that shows a resource and what its proxies lack.
func resourceCommand(k resource.Key) string {
	switch {
	case k.Kind == kindDataplane:
		return inspectCommand(k.Mesh, k.Name)
	case k.Name == "":
		return ""
	case k.Mesh == "":
		return "nearside get " + k.Kind + " " + k.Name + " -o yaml"
	}
	return "nearside get " + k.Kind + " " + k.Name + " -m " + k.Mesh + " -o yaml"
}

// rank returns the position of the group of a problem.
func rank(p *api.Problem) int {
	switch {
	case p.Unready:
		return 0
	case p.Severity == api.SeverityError:
		return 1
	}
	return 2
}

// CountProblems counts problems by class and severity, in the order of their first problem.
func CountProblems(list []api.Problem) []api.ProblemCount {
	var out []api.ProblemCount
	at := map[[2]string]int{}
	for _, p := range list {
		k := [2]string{p.Check, p.Severity}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, api.ProblemCount{Check: p.Check, Severity: p.Severity, Command: p.Command})
		}
		out[i].Count++
	}
	return out
}

// ProblemKey returns the resource of a problem, the zero key for the agent.
func ProblemKey(p *api.Problem) resource.Key { return keyOf(p.Resource) }

// NeedsWhole reports whether only a view of the whole has a problem: its text names files, damaged
// resources, or the number of all resources.
func NeedsWhole(p *api.Problem) bool {
	switch p.Check {
	case api.ClassFileFault, api.ClassFileConflict, api.ClassFileMissing, api.ClassFileExposed, api.ClassDamaged,
		api.ClassInert:
		return true
	}
	return false
}

// keyOf parses the form of [resource.Key.String].
func keyOf(text string) resource.Key {
	switch parts := strings.SplitN(text, "/", 3); len(parts) {
	case 3:
		return resource.Key{Kind: parts[0], Mesh: parts[1], Name: parts[2]}
	case 2:
		return resource.Key{Kind: parts[0], Name: parts[1]}
	}
	return resource.Key{Kind: text}
}
