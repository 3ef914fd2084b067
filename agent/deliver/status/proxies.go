package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// All returns all proxies: the Dataplanes of a snapshot, and the clients that request a config.
func (t *Tracker) All(snap *store.Snapshot, last *Result) []api.Proxy {
	byKey := map[resource.Key]*api.Proxy{}
	at := func(ref node.Ref) *api.Proxy {
		k := ref.Key()
		p := byKey[k]
		if p == nil {
			p = newProxy(ref)
			byKey[k] = p
		}
		return p
	}
	for _, res := range snap.Set().Kind(kindDataplane) {
		setOwner(at(node.Ref{Mesh: res.Mesh, Name: res.Name}), snap)
	}
	if t.Proxies != nil {
		for _, c := range t.Proxies() {
			p := at(node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name})
			p.Clients = append(p.Clients, c)
		}
	}
	for _, r := range t.refused() {
		if ref, err := node.ParseRef(r.NodeID); err == nil {
			p := at(ref)
			p.Refused = append(p.Refused, r)
		}
	}
	problems := map[string][]api.Problem{}
	if last != nil {
		for _, p := range last.Problems {
			problems[p.Resource] = append(problems[p.Resource], p)
		}
	}
	out := make([]api.Proxy, 0, len(byKey))
	near := nearest{set: snap.Set()}
	for k, p := range byKey {
		if isGone(p, snap.Set().Get(k)) {
			continue
		}
		last.concludeProxy(p, problems[k.String()], &near)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b api.Proxy) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// One returns one proxy, or nil if neither its resource nor a client exists. A client that has
// disconnected does not count.
func (t *Tracker) One(snap *store.Snapshot, last *Result, ref node.Ref) *api.Proxy {
	p := newProxy(ref)
	if ref.Key().Kind == kindDataplane {
		setOwner(p, snap)
	}
	switch {
	case t.ProxiesOf != nil:
		p.Clients = append(p.Clients, t.ProxiesOf(ref)...)
	case t.Proxies != nil:
		for _, c := range t.Proxies() {
			if ref == (node.Ref{Type: c.Type, Mesh: c.Mesh, Name: c.Name}) {
				p.Clients = append(p.Clients, c)
			}
		}
	}
	for _, r := range t.refused() {
		if r.NodeID == ref.NodeID() {
			p.Refused = append(p.Refused, r)
		}
	}
	if isGone(p, snap.Set().Get(ref.Key())) {
		return nil
	}
	var problems []api.Problem
	if last != nil {
		for _, x := range last.Problems {
			if x.Resource == ref.Key().String() {
				problems = append(problems, x)
			}
		}
	}
	last.concludeProxy(p, problems, &nearest{set: snap.Set()})
	return p
}

// Key returns the key of the resource of a proxy.
func Key(p *api.Proxy) resource.Key {
	return node.Ref{Type: p.Type, Mesh: p.Mesh, Name: p.Name}.Key()
}

func newProxy(ref node.Ref) *api.Proxy {
	return &api.Proxy{Type: ref.Type, Mesh: ref.Mesh, Name: ref.Name, Clients: []api.ProxyStatus{},
		Problems: []api.Problem{}}
}

// setOwner records whether the Dataplane exists, and which node owns it.
func setOwner(p *api.Proxy, snap *store.Snapshot) {
	rec, ok := snap.Get(resource.Key{Kind: kindDataplane, Mesh: p.Mesh, Name: p.Name})
	if p.Dataplane = ok; ok && rec.Source.Kind == store.SourcePeer {
		p.Node, p.Liveness = rec.Source.Detail, rec.Resource.Labels[resource.LabelLiveness]
	}
	state := snap.Set().Get(resource.Key{Kind: resource.KindEndpointState, Mesh: p.Mesh, Name: p.Name})
	if state == nil || !ok {
		return
	}
	if s, is := state.Spec.(*resource.EndpointState); is {
		since, _ := time.Parse(time.RFC3339, s.Since)
		p.Endpoints = &api.EndpointState{State: s.State, Reason: s.Reason, Inbounds: append([]uint32{}, s.Inbounds...),
			Since: since}
	}
}

// endpointText describes the state of endpoints.
func endpointText(s *api.EndpointState) string {
	what := "its endpoints receive"
	if len(s.Inbounds) > 0 {
		ports := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(s.Inbounds), "[]")), ", ")
		what = "its endpoints at the ports " + ports + " receive"
	}
	return fmt.Sprintf("%s no traffic since %s (%s): %s", what, s.Since.UTC().Format(time.RFC3339), s.State, s.Reason)
}

// isGone reports whether a proxy without a resource has no client any longer, such as that of a pod
// that was deleted. A client that is refused, or whose node id is unknown, has not gone.
func isGone(p *api.Proxy, res *resource.Resource) bool {
	return res == nil && len(p.Refused) == 0 && !slices.ContainsFunc(p.Clients, func(c api.ProxyStatus) bool {
		return c.State != api.StateDisconnected
	})
}

// concludeProxy sets the state of a proxy from its clients.
func (r *Result) concludeProxy(p *api.Proxy, problems []api.Problem, near *nearest) {
	p.Problems = append(p.Problems, problems...)
	named(p.Problems)
	slices.SortFunc(p.Clients, func(a, b api.ProxyStatus) int { return cmp.Compare(a.Flavor, b.Flavor) })
	p.State, p.Reason = api.StateDisconnected,
		"no Envoy on this node requests its config; start one with the output of nearside bootstrap"
	if p.Type != node.ProxyDataplane {
		p.Reason += " --proxy-type " + string(p.Type)
	}
	if p.Node != "" {
		p.State, p.Reason = api.StateElsewhere, "it belongs to node "+p.Node
		switch p.Liveness {
		case resource.LivenessDead:
			p.Reason += ", which does not respond"
		case resource.LivenessNoAgent:
			p.Reason += ", whose agent does not respond, but the dataplane does"
		}
	}
	for i := range p.Clients {
		state, reason := clientState(&p.Clients[i])
		why := r.StaleSince(node.Key{ID: p.Clients[i].NodeID, Flavor: p.Clients[i].Flavor}, 0)
		switch {
		case state == api.StateUnknown && p.Dataplane && why == "":
			state, reason = api.StatePending, whyWithout(p)
		case why != "" && (state == api.StateSynced || state == api.StatePending || state == api.StateUnknown):
			state, reason = api.StateStale, "it keeps an older config: "+why
		}
		if state == api.StateDisconnected && p.State == state {
			p.Reason = reason
		}
		if state != api.StateDisconnected &&
			(p.State == api.StateDisconnected || p.State == api.StateElsewhere || severity(state) > severity(p.State)) {
			p.State, p.Reason = state, reason
		}
	}
	if p.State == api.StateDisconnected && len(p.Refused) > 0 {
		p.State, p.Reason = refusedState(&p.Refused[0])
	}
	if p.State == api.StateUnknown {
		p.Reason += near.of(Key(p))
	}
	if p.Endpoints != nil {
		p.Reason = strings.TrimPrefix(p.Reason+"; "+endpointText(p.Endpoints), "; ")
	}
}

// whyWithout returns why a client has no config although its Dataplane exists.
func whyWithout(p *api.Proxy) string {
	for _, x := range p.Problems {
		if x.Severity == api.SeverityError {
			return "it has no config: " + x.Reason
		}
	}
	return "its config is being computed"
}

func severity(state string) int {
	return slices.Index([]string{api.StateSynced, api.StateElsewhere, api.StateDisconnected, api.StatePending,
		api.StateStale, api.StateRejected, api.StateRefused, api.StateUnknown}, state)
}

// clientState returns the state of a client and the reason.
func clientState(c *api.ProxyStatus) (state, reason string) {
	switch c.State {
	case api.StateDisconnected:
		return api.StateDisconnected, fmt.Sprintf("its %s of %s disconnected at %s; its log has the reason, if it ended",
			client(c.Flavor), c.Peer, leftAt(c).UTC().Format(time.RFC3339))
	case api.StateWaiting:
		return api.StatePending, "the agent has not loaded its state yet"
	case api.StateUnknown:
		return api.StateUnknown, unknownReason(c.NodeID, c.Type)
	}
	for _, t := range c.Types {
		if t.NACK != nil {
			return api.StateRejected, t.NACK.Reason + because(t.NACK.Policies)
		}
		if len(t.Held) > 0 {
			return api.StateRejected, fmt.Sprintf("%s: %s%s", t.Held[0].Name, t.Held[0].Reason, because(t.Held[0].Policies))
		}
	}
	if c.InSync {
		return api.StateSynced, ""
	}
	return api.StatePending, "an acknowledgment has been pending since " + lastSent(c).UTC().Format(time.RFC3339)
}

// client returns the name of a kind of clients.
func client(f node.Flavor) string {
	if f == node.FlavorEnvoy {
		return "Envoy"
	}
	return "client"
}

// leftAt returns the time when a client disconnected.
func leftAt(c *api.ProxyStatus) time.Time {
	for _, e := range slices.Backward(c.Events) {
		if e.Kind == "disconnected" {
			return e.Time
		}
	}
	return c.ConnectedAt
}

// lastSent returns the time of the latest response, or of the connection.
func lastSent(c *api.ProxyStatus) time.Time {
	at := c.ConnectedAt
	for _, t := range c.Types {
		if t.SentAt.After(at) {
			at = t.SentAt
		}
	}
	return at
}
