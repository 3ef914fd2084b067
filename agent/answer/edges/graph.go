package edges

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

// Graph holds the edges of one state of a mesh. It is for one goroutine, because it computes
// decisions on first use.
type Graph struct {
	m       *generate.Mesh
	v       *mesh.View
	guarded *policy.Index // whose permissions are prepared; nil until it is needed
	gates   *gates

	nodes  []*node // sorted by name
	byName map[string]int

	classOf []int32 // by service of the view: index in classes
	classes []destination
	// services of the view by address and cluster; nil until they are needed
	byAddr    addresses
	byCluster map[string]int32
	nodeOf    []int // by service of the view

	callers []caller // by dataplane of the view
	clients []clientClass
	reaches []reach

	counts *counts // of all edges, without traffic; nil until it is needed
	kept   int     // bytes of decisions
	print  [32]byte
}

// node is a service of the result.
type node struct {
	name    string
	kind    string
	gateway bool
	dests   []int32 // services of the view
	members []int32 // dataplanes of the view that are clients as this service
	servers []int32 // dataplanes of the view, if the service has no clients of its own
}

// destination is a class of services about which the decisions are equal.
type destination struct {
	gates      []*gate       // of the inbounds behind it; none if another field decides
	serverName string        // if a gate depends on it
	outside    *mesh.Service // a destination outside the mesh
	unknown    *mesh.Service // its inbounds are unknown here
	plain      bool          // connections to it have no mutual TLS, so clients are unknown
}

// caller is a dataplane as a client.
type caller struct {
	dataplane *resource.Resource
	spec      *resource.Dataplane
	client    int // in clients
	reach     int // in reaches
}

// clientClass holds clients with equal certificates, and the decisions about them.
type clientClass struct {
	client
	dataplane *resource.Resource // one of them
	decided   []bits             // by class of destination; nil until they are needed
}

// bits says whether some proxies or ports are allowed, and whether some are denied.
type bits uint8

const (
	allowed bits = 1 << iota
	denied
)

// reach is what dataplanes with equal lists reach.
type reach struct {
	dataplane *resource.Resource // one of them
	services  []reachBits        // by service of the view; nil until they are needed
}

type reachBits uint8

const (
	reachable reachBits = 1 << iota
	listed              // an entry of the dataplane names it
)

// NewGraph derives the graph of a mesh. It returns prev, which may be nil, if its answers are the
// same, and reuses the unchanged parts of it otherwise.
func NewGraph(m *generate.Mesh, prev *Graph) *Graph {
	if prev != nil && prev.m == m {
		return prev
	}
	print := printOf(m)
	if prev != nil && print == prev.print && slices.Equal(m.View.Dataplanes(), prev.v.Dataplanes()) {
		prev.follow(m)
		return prev
	}
	g := &Graph{m: m, v: m.View, print: print, byName: map[string]int{}}
	if m.Policies != nil {
		var before *gates
		if prev != nil {
			before = prev.gates
		}
		g.gates = newGates(m.Policies, before)
	}
	g.addNodes()
	g.classify()
	g.addCallers()
	return g
}

// printOf hashes what edges depend on, except the dataplanes.
func printOf(m *generate.Mesh) [32]byte {
	h := sha256.New()
	h.Write(m.View.Catalog[:])
	h.Write(m.View.Common[:])
	outside := m.Policies.OutsideDigest()
	h.Write(outside[:])
	var b []byte
	for _, s := range m.View.Services() {
		b = fmt.Appendf(b[:0], "%p %v\n", s.Endpoints, s.TLSNotReady)
		h.Write(b)
	}
	if x := m.Policies; x != nil {
		auto, _ := x.AutoReachable()
		b = fmt.Appendf(b[:0], "%v\n", auto)
		for _, r := range permissionsOf(x, x.PermissionPlugins()) {
			b = append(append(append(b, r.Kind...), r.Name...), 0)
			b = append(b, r.Digest[:]...)
		}
		h.Write(b)
	}
	return [32]byte(h.Sum(nil))
}

// follow replaces the mesh by one with the same answers, so that the previous one can be freed.
func (g *Graph) follow(m *generate.Mesh) {
	g.m, g.v, g.guarded, g.byAddr = m, m.View, nil, nil
	if g.gates != nil {
		g.gates.x, g.gates.matcher = m.Policies, nil
	}
	for i := range g.classes {
		c := &g.classes[i]
		if c.outside != nil {
			c.outside = m.View.Services()[c.outside.Index]
		}
		if c.unknown != nil {
			c.unknown = m.View.Services()[c.unknown.Index]
		}
	}
}

// enforced reports whether permissions have an effect.
func (g *Graph) enforced() bool { return g.gates != nil && g.v.Spec.MTLSEnabled() != nil }

// classify finds the class of each service.
func (g *Graph) classify() {
	services := g.v.Services()
	g.classOf = make([]int32, len(services))
	if !g.enforced() {
		g.classes = []destination{{}}
		return
	}
	byKey := map[string]int32{}
	var key []byte
	for i, s := range services {
		var d destination
		key = key[:0]
		switch {
		case s.Outside != nil:
			d.outside = s
			key = fmt.Appendf(key, "outside %v", s.Egress)
			for j := range s.Outside.List {
				key = fmt.Appendf(key, " %p", g.m.Policies.Outside(s.Outside.List[j].Resource.Key))
			}
		case !g.v.UsesTLS(s):
			key, d.plain = append(key, "plain"...), true
		default:
			for j := range s.Endpoints.List {
				e := &s.Endpoints.List[j]
				if e.Relay() || e.Resource == nil || e.Resource.Kind != kindDataplane {
					d.gates = nil
					break
				}
				if x := g.gateOf(e.Resource, e.Index); !slices.Contains(d.gates, x) {
					d.gates = append(d.gates, x)
				}
			}
			slices.SortFunc(d.gates, func(a, b *gate) int { return a.id - b.id })
			if len(d.gates) == 0 {
				d.unknown = s
				key = fmt.Appendf(key, "unknown %d", i)
			}
			for _, x := range d.gates {
				key = fmt.Appendf(key, "%d ", x.id)
				if x.names {
					d.serverName = strings.ToLower(servername.Of(g.v.Name, &mesh.Outbound{Service: s}))
				}
			}
			key = append(key, d.serverName...)
		}
		at, ok := byKey[string(key)]
		if !ok {
			at = int32(len(g.classes))
			byKey[string(key)] = at
			g.classes = append(g.classes, d)
		}
		g.classOf[i] = at
	}
}

// gateOf returns the gate of the listener of an inbound, which serves all inbounds of its port.
func (g *Graph) gateOf(r *resource.Resource, inbound int) *gate {
	if dp, ok := r.Spec.(*resource.Dataplane); ok {
		if shared := dp.Networking.SamePort(); shared != nil && inbound >= 0 && inbound < len(shared) {
			inbound = shared[inbound][0]
		}
	}
	return g.gates.at(r, inbound)
}

// addCallers finds the classes of the dataplanes as clients.
func (g *Graph) addCallers() {
	list := g.v.Dataplanes()
	g.callers = make([]caller, len(list))
	clients, reaches := map[string]int{}, map[string]int{}
	auto := false
	if g.m.Policies != nil {
		auto, _ = g.m.Policies.AutoReachable()
	}
	for i, r := range list {
		c := caller{dataplane: r}
		c.spec, _ = r.Spec.(*resource.Dataplane)
		if c.spec == nil {
			c.spec = &resource.Dataplane{}
		}
		id := ""
		if g.enforced() {
			id = strings.Join(g.m.CertificateNames(r), "\x00")
		}
		at, ok := clients[id]
		if !ok {
			at = len(g.clients)
			clients[id] = at
			x := clientClass{dataplane: r}
			if id != "" {
				x.client = client{ids: strings.Split(id, "\x00"), tags: g.v.ProxyTags(c.spec)}
			}
			g.clients = append(g.clients, x)
		}
		c.client = at
		key := reachKey(r, c.spec)
		if auto {
			key += "\x00" + id
		}
		if at, ok = reaches[key]; !ok {
			at = len(g.reaches)
			reaches[key] = at
			g.reaches = append(g.reaches, reach{dataplane: r})
		}
		c.reach = at
		g.callers[i] = c
	}
}

// reachKey identifies the lists of a dataplane.
func reachKey(r *resource.Resource, dp *resource.Dataplane) string {
	tp := dp.Networking.TransparentProxying
	switch {
	case tp == nil && len(dp.Networking.Outbound) == 0:
		return "none"
	case tp != nil && len(dp.Networking.Outbound)+len(tp.ReachableServices) == 0 && tp.ReachableBackends == nil:
		return "open"
	}
	lists := struct {
		Namespace string
		Outbound  []resource.Outbound
		Proxy     bool
		Services  []string
		Backends  *resource.ReachableBackends
	}{Namespace: r.Namespace(), Outbound: dp.Networking.Outbound, Proxy: tp != nil}
	if tp != nil {
		lists.Services, lists.Backends = tp.ReachableServices, tp.ReachableBackends
	}
	b, err := json.Marshal(lists)
	if err != nil {
		return "dataplane " + r.Name
	}
	return string(b)
}
