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

// Plan is what one policy wants.
type Plan struct {
	Policy  *resource.Resource
	Changes []*Change
	Bare    bool // nothing that the agent generates is kept
}

// editor applies plans to one part of a draft.
type editor struct {
	c       *policy.Context
	d       *draft.Draft
	plans   []Plan
	about   [Listeners + 1]concern // clusters, and listeners with all that is in them
	applied []bool                 // by plan: it has changed, added or removed something
	failed  []bool                 // by plan: some resource stays without it
	merged  map[mergedKey]*anypb.Any
	checker check.Checker
}

// mergedKey names the configuration that a change makes of a shared one, which many filters have.
type mergedKey struct {
	change *Change
	packed *anypb.Any
}

// step is a place in the plans.
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

// What is claimed of the host, so that it is known in later parts of the draft: that a policy was
// applied, or dropped for a resource.
const (
	claimApplied = Kind + " applied"
	claimFailed  = Kind + " left out"
)

// noEffect is the reason of the warning about a policy that was dropped wherever it could have an
// effect.
const noEffect = "this policy has no effect on the proxy: its other warnings say why"

// warnUseless notes, with the last part of the draft, which policies have no effect in any of them.
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

// each returns what the plans make of the clusters or listeners of a draft.
func each[T comparable](e *editor, t Target, list []T) []T {
	about := &e.about[t]
	if !about.any() {
		return list
	}
	kept := list[:0]
	for _, x := range list {
		if !about.added[itemOf(x).name()] {
			if x, ok := edit(e, t, x, step{}); ok {
				kept = append(kept, x)
			}
		}
	}
	return kept
}

// item is a cluster or a listener of a draft.
type item interface {
	name() string
	MadeBy() string
	concernedBy(*Change) bool
	// patch makes one change, for which it replaces messages and lists.
	patch(*editor, *Change) error
	draft() *draft.Draft // with the item alone
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

// edit returns what the plans make of a cluster or listener from a step on, false when one of them
// removes it. Of a plan all changes are made or none.
func edit[T comparable](e *editor, t Target, x T, s step) (T, bool) {
	for i, changes := range e.from(s, t, itemOf(x).name()) {
		work := x
		var last *Change
		var err error
		for _, ch := range changes {
			if !itemOf(work).concernedBy(ch) {
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
			err = e.worse(itemOf(work), itemOf(x))
		}
		if err != nil {
			e.fault(i, last, stays(t, itemOf(x), last), err)
			continue
		}
		e.applied[i] = true
		x = work
	}
	return x, true
}

// worse returns what is wrong with an item after patching, where it was not wrong before.
func (e *editor) worse(after, before item) error {
	if after.name() != before.name() {
		return fmt.Errorf("the name becomes %q: a patch cannot rename", after.name())
	}
	found := alone(&e.checker, after.draft())
	if len(found) == 0 {
		return nil
	}
	known := alone(&e.checker, before.draft())
	return firstOf(slices.DeleteFunc(found, func(f finding.Finding) bool {
		return slices.ContainsFunc(known, func(k finding.Finding) bool {
			return k.Rule == f.Rule && k.Pointer == f.Pointer && k.Message == f.Message
		})
	}))
}

// stays says what stays, in words that are the same for all items that a change is about, since
// equal warnings are kept once.
func stays(t Target, x item, ch *Change) string {
	name := ch.match.listener
	if ch.target == t {
		name = ch.match.name
	}
	if name != nil {
		return fmt.Sprintf("the %s %q stays", targets[t].name, x.name())
	}
	return fmt.Sprintf("%s %ss stay", cmp.Or(x.MadeBy(), "other"), targets[t].name)
}

// fault says that a resource stays without a policy.
func (e *editor) fault(plan int, ch *Change, what string, err error) {
	e.failed[plan] = true
	e.c.Host.Warn(e.plans[plan].Policy.Key, "%s: %v: %s as if this policy were not there", ch.describe(), err, what)
}

// resourceID names a resource that is added.
type resourceID struct{ name, kind string }

// add adds whole resources, each with what later changes make of it. Of several with one name the
// last counts.
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
				e.fault(i, ch, "it stays away", err)
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
		rank := draft.Rank(draft.TypeSecret)
		e.d.Ready[rank] = append(e.d.Ready[rank], draft.NewResource(m.Name, body))
	}
	return nil
}
