package proxypatch

import (
	"cmp"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Plan is the list of changes of one policy.
type Plan struct {
	Policy  *resource.Resource
	Changes []*Change
	Bare    bool // removes everything that the agent generates
}

// editor applies plans to one part of a draft.
type editor struct {
	c       *policy.Context
	d       *draft.Draft
	plans   []Plan
	index   [Listeners + 1]planIndex // by target: clusters, and listeners with their contents
	applied []bool                   // by plan: it has changed, added, or removed something
	failed  []bool                   // by plan: it was dropped for some resource
	merged  map[mergedKey]*anypb.Any
	checker check.Checker
}

// mergedKey identifies the result of changing a packed config that many filters share.
type mergedKey struct {
	change *Change
	packed *anypb.Any
}

// step is a position in the plans.
type step struct{ plan, change int }

func (e *editor) run() {
	d := e.d
	e.applied, e.failed = make([]bool, len(e.plans)), make([]bool, len(e.plans))
	for i := range e.plans {
		if e.applied[i] = e.plans[i].Bare; e.plans[i].Bare {
			d.Listeners, d.Clusters, d.Routes = d.Listeners[:0], d.Clusters[:0], nil
		}
		for _, ch := range e.plans[i].Changes {
			e.note(i, ch)
		}
	}
	d.Clusters = each(e, Clusters, d.Clusters)
	d.Listeners = each(e, Listeners, d.Listeners)
	if e.c.Last {
		e.add()
	}
	e.warnUseless()
}

// Prefixes of claims, which later parts of the draft can see: that a policy was applied, or dropped
// for a resource.
const (
	claimApplied = Kind + " applied"
	claimFailed  = Kind + " left out"
)

// noEffect is the warning for a policy that was dropped for every resource.
const noEffect = "this policy has no effect on the proxy, for the reasons in its other warnings"

// warnUseless warns, with the last part of the draft, about policies that had no effect in any
// part.
func (e *editor) warnUseless() {
	claim := func(i int, what string) bool { return e.c.Host.Claim(what, e.plans[i].Policy.Key.String()) }
	for i, p := range e.plans {
		if e.applied[i] {
			claim(i, claimApplied)
		}
		if e.failed[i] {
			claim(i, claimFailed)
		}
		if e.c.Last && !claim(i, claimFailed) && claim(i, claimApplied) {
			e.c.Host.Warn(p.Policy.Key, noEffect)
		}
	}
}

// each applies the plans to the clusters or listeners of a draft.
func each[T comparable](e *editor, t Target, list []T) []T {
	index := &e.index[t]
	if !index.any() {
		return list
	}
	out := list[:0]
	for _, x := range list {
		if !index.added[itemOf(x).name()] {
			if x, ok := edit(e, t, x, step{}); ok {
				out = append(out, x)
			}
		}
	}
	return out
}

// item is a cluster or listener of a draft.
type item interface {
	name() string
	MadeBy() string
	affectedBy(*Change) bool
	// patch applies one change. It replaces messages and lists instead of modifying them.
	patch(*editor, *Change) error
	draft() *draft.Draft // with only the item
}

func itemOf(x any) item {
	switch x := x.(type) {
	case *draft.Cluster:
		return cluster{x}
	case *draft.Listener:
		return listener{x}
	}
	return nil
}

func copied[T comparable](x T) T {
	var out any
	switch x := any(x).(type) {
	case *draft.Cluster:
		c := *x
		out = &c
	case *draft.Listener:
		out = x.Copy()
	}
	return out.(T)
}

// edit applies the plans, starting at a step, to a cluster or listener. It returns false if a plan
// removes it. Either all changes of a plan apply or none.
func edit[T comparable](e *editor, t Target, x T, s step) (T, bool) {
	for i, changes := range e.from(s, t, itemOf(x).name()) {
		work := x
		var last *Change
		var err error
		for _, ch := range changes {
			if !itemOf(work).affectedBy(ch) {
				continue
			}
			if ch.target == t && ch.op == Remove {
				e.applied[i] = true
				return x, false
			}
			if work == x {
				work = copied(x)
			}
			last = ch
			if err = itemOf(work).patch(e, ch); err != nil {
				break
			}
		}
		if last == nil {
			continue
		}
		if err == nil {
			err = e.introduced(itemOf(work), itemOf(x))
		}
		if err != nil {
			e.fault(i, last, unchanged(t, itemOf(x), last), err)
			continue
		}
		e.applied[i] = true
		x = work
	}
	return x, true
}

// introduced returns the first problem of a patched item that the original does not have.
func (e *editor) introduced(after, before item) error {
	if after.name() != before.name() {
		return fmt.Errorf("the name becomes %q, and a patch cannot rename", after.name())
	}
	found := structuralFindings(&e.checker, after.draft())
	if len(found) == 0 {
		return nil
	}
	known := structuralFindings(&e.checker, before.draft())
	return firstOf(slices.DeleteFunc(found, func(f finding.Finding) bool {
		return slices.ContainsFunc(known, func(k finding.Finding) bool {
			return k.Rule == f.Rule && k.Pointer == f.Pointer && k.Message == f.Message
		})
	}))
}

// unchanged describes the items that a failed change does not affect. The text is equal for all of
// them, so that their warnings are recorded once.
func unchanged(t Target, x item, ch *Change) string {
	name := ch.match.listener
	if ch.target == t {
		name = ch.match.name
	}
	if name != nil {
		return fmt.Sprintf("this policy has no effect on the %s %q", targets[t].name, x.name())
	}
	return fmt.Sprintf("this policy has no effect on %s %ss", cmp.Or(x.MadeBy(), "other"), targets[t].name)
}

// fault warns that a policy was dropped for a resource. effect describes the consequence.
func (e *editor) fault(plan int, ch *Change, effect string, err error) {
	e.failed[plan] = true
	e.c.Host.Warn(e.plans[plan].Policy.Key, "%s: %v; %s", ch.describe(), err, effect)
}

// resourceID identifies an added resource.
type resourceID struct{ name, kind string }

// add adds whole resources, after applying later changes to them. Of several resources with one
// name only the last is added.
func (e *editor) add() {
	last := map[resourceID]*Change{}
	id := func(ch *Change) (resourceID, bool) {
		name, _, ok := ch.Adds()
		if !ok {
			return resourceID{}, false
		}
		return resourceID{name, nameOfType(ch.value.message)}, true
	}
	for i := range e.plans {
		for _, ch := range e.plans[i].Changes {
			if id, ok := id(ch); ok {
				last[id] = ch
			}
		}
	}
	for i, p := range e.plans {
		for j, ch := range p.Changes {
			if id, ok := id(ch); !ok || last[id] != ch {
				continue
			}
			if err := e.addOne(ch, step{i, j + 1}); err != nil {
				e.fault(i, ch, "the resource was not added", err)
				continue
			}
			e.applied[i] = true
		}
	}
}

func (e *editor) addOne(ch *Change, next step) error {
	switch m := proto.Clone(ch.value.message).(type) {
	case *clusterv3.Cluster:
		x := &draft.Cluster{Kind: draft.OtherCluster, Origin: ch.origin}
		if err := x.SetWhole(m); err != nil {
			return err
		}
		if x, ok := edit(e, Clusters, x, next); ok {
			e.d.Clusters = append(e.d.Clusters, x)
		}
	case *listenerv3.Listener:
		l := &draft.Listener{Kind: draft.OtherListener, Origin: ch.origin}
		if err := l.SetWhole(m); err != nil {
			return err
		}
		if l, ok := edit(e, Listeners, l, next); ok {
			e.d.Listeners = append(e.d.Listeners, l)
		}
	case *routev3.RouteConfiguration:
		e.d.Routes = append(e.d.Routes, m)
	case *endpointv3.ClusterLoadAssignment:
		e.d.Endpoints = append(e.d.Endpoints, m)
	case *tlsv3.Secret:
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return err
		}
		e.d.Ready[draft.RankSecret] = append(e.d.Ready[draft.RankSecret], draft.NewResource(draft.RankSecret, m.Name, body))
	}
	return nil
}
