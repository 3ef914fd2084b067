package match

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Config evaluates connections and requests as the proxy would. It decodes resources on first use
// and is not safe for concurrent use.
type Config struct {
	snapshot *envoy.Snapshot
	facts    *finding.Facts

	opened    bool
	sockets   sockets
	listeners []*Listener // by index in the snapshot; nil until needed
	heads     []*listenerv3.Listener
	routes    map[string]*Routes
}

// Open returns the config of a snapshot, which must not be modified. It ignores resources that
// cannot be decoded; the check reports them. facts may be nil.
func Open(s *envoy.Snapshot, facts *finding.Facts) *Config {
	if facts == nil {
		facts = &finding.Facts{}
	}
	return &Config{snapshot: s, facts: facts}
}

// open decodes only the addresses of all listeners.
func (c *Config) open() {
	if c.opened {
		return
	}
	c.opened = true
	list := c.snapshot[envoy.KindListener]
	c.listeners, c.heads = make([]*Listener, len(list)), make([]*listenerv3.Listener, len(list))
	var scratch []byte
	for i, r := range list {
		m := &listenerv3.Listener{}
		var err error
		if scratch, err = withoutFields(scratch[:0], r.Body(), fieldFilterChains, fieldDefaultChain, fieldListenerMetadata,
			fieldChainMatcher); err != nil || proto.Unmarshal(scratch, m) != nil {
			m = &listenerv3.Listener{}
		}
		c.heads[i] = m
		c.sockets.add(i, m)
	}
}

// listener returns the listener at an index of the snapshot.
func (c *Config) listener(i int) *Listener {
	if c.listeners[i] == nil {
		m := &listenerv3.Listener{}
		if proto.Unmarshal(c.snapshot[envoy.KindListener][i].Body(), m) != nil {
			m = &listenerv3.Listener{}
		}
		c.listeners[i] = NewListener(m)
	}
	return c.listeners[i]
}

// decode decodes the named resource into a message, and reports whether there is one.
func (c *Config) decode(k envoy.Kind, name string, m proto.Message) bool {
	r := c.snapshot.Find(k, name)
	return r != nil && proto.Unmarshal(r.Body(), m) == nil
}

// routesOf returns the RDS routes of a name, or nil.
func (c *Config) routesOf(name string) *Routes {
	if r, ok := c.routes[name]; ok {
		return r
	}
	var out *Routes
	if m := (&routev3.RouteConfiguration{}); c.decode(envoy.KindRoute, name, m) {
		out = NewRoutes(m)
	}
	if c.routes == nil {
		c.routes = map[string]*Routes{}
	}
	c.routes[name] = out
	return out
}

// cluster returns the named cluster, or nil.
func (c *Config) cluster(name string) *clusterv3.Cluster {
	if m := (&clusterv3.Cluster{}); c.decode(envoy.KindCluster, name, m) {
		return m
	}
	return nil
}

// assignment returns the endpoints of a cluster, or nil.
func (c *Config) assignment(m *clusterv3.Cluster) *endpointv3.ClusterLoadAssignment {
	if m.GetType() != clusterv3.Cluster_EDS {
		return m.GetLoadAssignment()
	}
	out := &endpointv3.ClusterLoadAssignment{}
	if c.decode(envoy.KindEndpoint, cmp.Or(m.GetEdsClusterConfig().GetServiceName(), m.GetName()), out) {
		return out
	}
	return nil
}

// Connection traces a connection through listener filters, the filter chain, network filters, and,
// for TCP, to the cluster.
func (c *Config) Connection(conn *Conn) *Trace {
	return (&walk{config: c, conn: conn, trace: &Trace{}}).run()
}

// Request traces a request on a connection, including HTTP filters and routes.
func (c *Config) Request(conn *Conn, req *Request) *Trace {
	if req == nil {
		req = &Request{}
	}
	return (&walk{config: c, conn: conn, req: req, trace: &Trace{}}).run()
}
