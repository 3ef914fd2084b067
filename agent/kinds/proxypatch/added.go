package proxypatch

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// The origins of what policies of this plugin add.
const (
	originPatch    = "mesh-proxy-patch"
	originTemplate = "proxy-template-modifications"
	originRaw      = "proxy-template-raw"
)

// resourceID names a resource that is added.
type resourceID struct {
	name string
	kind protoreflect.FullName
}

func (c *change) id() resourceID {
	return resourceID{nameOf(c.value.message), c.value.message.ProtoReflect().Descriptor().FullName()}
}

// addsResource is true for a change that adds a whole resource.
func (c *change) addsResource() bool { return c.op == Add && c.target != virtualHosts }

// add adds whole resources, each with what later changes make of it. Of several with one name the last counts.
func (e *editor) add() {
	last := map[resourceID]*change{}
	for i := range e.plans {
		for _, ch := range e.plans[i].changes {
			if ch.addsResource() {
				last[ch.id()] = ch
			}
		}
	}
	for i := range e.plans {
		p := &e.plans[i]
		for j, ch := range p.changes {
			if !ch.addsResource() || last[ch.id()] != ch {
				continue
			}
			if err := e.addOne(p, ch, step{i, j + 1}); err != nil {
				e.fault(p, ch, "it stays away", err)
			}
		}
	}
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
