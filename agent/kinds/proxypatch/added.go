package proxypatch

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// The origins of what policies of this room add.
const (
	originPatch    = "mesh-proxy-patch"
	originTemplate = "proxy-template-modifications"
	originRaw      = "proxy-template-raw"
)

// add adds whole resources, each with what later changes make of it. Of several with one name the last counts.
func (e *editor) add() {
	for i := range e.plans {
		p := &e.plans[i]
		for j, ch := range p.changes {
			if ch.op != Add || ch.target == virtualHosts || e.addedLater(ch, step{i, j + 1}) {
				continue
			}
			if err := e.addOne(p, ch, step{i, j + 1}); err != nil {
				e.fault(p, ch, "it stays away", err)
			}
		}
	}
}

// addedLater reports whether a later change adds another resource in the place of this one.
func (e *editor) addedLater(ch *change, s step) bool {
	found := false
	e.from(s, func(_ *plan, changes []*change) {
		for _, later := range changes {
			found = found || later.addsSame(ch)
		}
	})
	return found
}

func (e *editor) addOne(p *plan, ch *change, next step) error {
	origin := originPatch
	switch {
	case ch.raw:
		origin = originRaw
	case p.policy.Kind == legacyKind:
		origin = originTemplate
	}
	switch m := proto.Clone(ch.value.message).(type) {
	case *clusterv3.Cluster:
		x := &draft.Cluster{Kind: draft.OtherCluster, Origin: origin}
		if err := x.SetWhole(m); err != nil {
			return err
		}
		if x = e.cluster(x, next); x != nil {
			e.d.Clusters = append(e.d.Clusters, x)
		}
	case *listenerv3.Listener:
		l := &draft.Listener{Kind: draft.OtherListener, Origin: origin}
		if err := l.SetWhole(m); err != nil {
			return err
		}
		if l = e.listener(l, next); l != nil {
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
