package match

import (
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// Routes selects the virtual host and the route of requests. It is built once from a message, which
// must not be modified, and is immutable.
type Routes struct {
	Message *routev3.RouteConfiguration
	hosts   *hostIndex
	routes  [][]routeMatch // by virtual host
}

// NewRoutes returns the index of a route configuration. It accepts any message and ignores what
// Envoy would reject.
func NewRoutes(m *routev3.RouteConfiguration) *Routes {
	r := &Routes{Message: m, hosts: IndexHosts(m.GetVirtualHosts()),
		routes: make([][]routeMatch, len(m.GetVirtualHosts()))}
	for i, h := range m.GetVirtualHosts() {
		r.routes[i] = make([]routeMatch, len(h.GetRoutes()))
		for j, route := range h.GetRoutes() {
			r.routes[i][j] = compileRouteMatch(route.GetMatch())
		}
	}
	return r
}

// RouteMatch is the result of routing a request.
type RouteMatch struct {
	// Outcome is Forwarded, Answered (a redirect or direct response), NoHost, or NoRoute.
	Outcome Outcome
	Host    int // index of the virtual host, or NoIndex
	Route   int // index of the route in it, or NoIndex
	Domain  string
	// Status and Location are set for an answer.
	Status   uint32
	Location string
	// Clusters may receive the request. Total is the sum of their weights.
	Clusters []WeightedCluster
	Total    uint64
}

// WeightedCluster is a cluster that a route may choose.
type WeightedCluster struct {
	Name   string // "" if the header that names it is missing
	Weight uint32
	Chosen bool // by the request's Roll

	entry *routev3.WeightedCluster_ClusterWeight // nil for the cluster of a route
}

// Find selects the virtual host and its first matching route.
func (r *Routes) Find(req *Request) RouteMatch {
	return r.find(newStream(req, &Seen{}, nil, req.Scheme == "https"), nil)
}

// FindHost selects a virtual host by the Host header.
func (r *Routes) FindHost(host string) (index int, domain string) {
	return r.hosts.find(r.hostOf(host))
}

func (r *Routes) hostOf(host string) string {
	if r.Message.GetIgnorePortInHostMatching() {
		if i := portStart(host); i >= 0 {
			return host[:i]
		}
	}
	return host
}

func (r *Routes) find(s *stream, steps *[]Step) RouteMatch {
	host := s.host
	if name := r.Message.GetVhostHeader(); name != "" {
		host, _ = s.header(name)
	}
	host = r.hostOf(host)
	m := RouteMatch{Route: NoIndex}
	m.Host, m.Domain = r.hosts.find(host)
	hosts := r.Message.GetVirtualHosts()
	if steps != nil {
		*steps = append(*steps, hostStep(hosts, host, m.Host, m.Domain))
	}
	if m.Host == NoIndex {
		m.Outcome, m.Status = NoHost, 404
		return m
	}
	vhost := hosts[m.Host]
	if wants := vhost.GetRequireTls(); s.scheme != "https" &&
		(wants == routev3.VirtualHost_ALL || wants == routev3.VirtualHost_EXTERNAL_ONLY && !s.internal()) {
		m.Outcome, m.Status, m.Location = Answered, 301, "https://"+s.host+s.path
		return m
	}
	step := Step{Level: LevelRoute, Input: s.method + " " + clip.Value(s.path)}
	for i, route := range vhost.GetRoutes() {
		fits, why := r.routes[m.Host][i].matches(s)
		if fits == yes {
			m.Route = i
			step.Choice = routeName(route, i)
			break
		}
		if fits == unknown {
			why += ": taken as not fitting"
		}
		if len(step.Eliminated) == maxListed {
			step.More++
		} else if steps != nil {
			step.Eliminated = append(step.Eliminated, Eliminated{Name: routeName(route, i), Why: why})
		}
	}
	if vhost.GetMatcher() != nil {
		step.note("the virtual host has a matcher in place of routes, which is not evaluated here")
	}
	if m.Route == NoIndex {
		m.Outcome, m.Status = NoRoute, 404
	} else {
		m.act(vhost.GetRoutes()[m.Route], s, &step)
	}
	if steps != nil {
		*steps = append(*steps, step)
	}
	return m
}

func routeName(r *routev3.Route, i int) string {
	if r.GetName() != "" {
		return r.GetName()
	}
	return fmt.Sprintf("#%d", i)
}

// act sets the action of the route.
func (m *RouteMatch) act(route *routev3.Route, s *stream, step *Step) {
	switch a := route.GetAction().(type) {
	case *routev3.Route_Route:
		m.forward(a.Route, s, step)
	case *routev3.Route_Redirect:
		m.Outcome, m.Status = Answered, syntax.RedirectStatus(a.Redirect)
		m.Location = redirectTo(a.Redirect, route.GetMatch(), s)
	case *routev3.Route_DirectResponse:
		m.Outcome, m.Status = Answered, a.DirectResponse.GetStatus()
	default:
		m.Outcome = Answered
		step.note("the route's action is not evaluated here")
	}
}

// forward adds the clusters of a route action.
func (m *RouteMatch) forward(a *routev3.RouteAction, s *stream, step *Step) {
	m.Outcome = Forwarded
	one := func(name string) {
		m.Clusters, m.Total = []WeightedCluster{{Name: name, Weight: 1, Chosen: true}}, 1
	}
	switch c := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		one(c.Cluster)
	case *routev3.RouteAction_ClusterHeader:
		name, ok := s.header(c.ClusterHeader)
		if !ok {
			step.note("the header %s, which names the cluster, is missing", clip.Value(c.ClusterHeader))
		}
		one(name)
	case *routev3.RouteAction_WeightedClusters:
		for _, w := range c.WeightedClusters.GetClusters() {
			name := w.GetName()
			if name == "" {
				name, _ = s.header(w.GetClusterHeader())
			}
			m.Clusters = append(m.Clusters, WeightedCluster{Name: name, Weight: w.GetWeight().GetValue(), entry: w})
			m.Total += uint64(w.GetWeight().GetValue())
		}
		m.choose(s.roll)
	default:
		step.note("the way in which the route names its cluster is not evaluated here")
	}
}

// choose marks the cluster that a random number selects.
func (m *RouteMatch) choose(roll uint64) {
	if m.Total == 0 {
		return
	}
	at := roll % m.Total
	for i := range m.Clusters {
		if w := uint64(m.Clusters[i].Weight); at < w {
			m.Clusters[i].Chosen = true
			return
		} else {
			at -= w
		}
	}
}
