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

// resourceID names a resource that is added.
type resourceID struct{ name, kind string }

// add adds whole resources, each with what later changes make of it. Of several with one name the last counts.
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
