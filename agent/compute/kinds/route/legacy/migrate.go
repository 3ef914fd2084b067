package legacy

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/route"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// migrate converts TrafficRoutes to MeshHTTPRoutes and MeshTCPRoutes with one item for each
// service, because targetRef policies require a destination. Their load balancing becomes a
// MeshLoadBalancingStrategy. A TrafficRoute that sends everything to the service itself is the
// default, so it becomes a route only if it overrides another one.
func migrate(in *policy.MigrateInput) policy.Migration {
	m := &migration{in: in, overridden: map[resource.Key]bool{}, migrated: map[*successor.Unit]map[string]*migrated{},
		plan: successor.NewPlan(in, successor.PlanOptions{
			Kinds: []string{route.KindHTTP, route.KindTCP, kindBalancing},
			SupersededBy: func(d *resource.Resource) *resource.Resource {
				http, tcp := in.Index.Ruled(d, route.KindHTTP), in.Index.Ruled(d, route.KindTCP)
				if len(http) == 0 || len(tcp) == 0 {
					return nil
				}
				return http[len(http)-1]
			},
		})}
	out := policy.Migration{Without: m.plan.Without, Changes: changes()}
	migrated := map[resource.Key]bool{}
	for _, u := range m.plan.Units {
		for _, p := range m.unit(u) {
			migrated[u.Policy.Key] = true
			out.Policies = append(out.Policies, p)
		}
	}
	for _, u := range m.plan.Units {
		if key := u.Policy.Key; !migrated[key] {
			migrated[key] = true
			why := "it is equivalent to the default: requests and connections go to their service"
			if m.overridden[key] {
				why = "others take precedence over it for every existing service"
			}
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: key, Why: why})
		}
	}
	return out
}

// migration holds the state of a migration.
type migration struct {
	in       *policy.MigrateInput
	plan     *successor.Plan
	migrated map[*successor.Unit]map[string]*migrated // routes by unit and service
	balanced balancing
	// overridden are the policies that differ from the default, but over which others take
	// precedence for all services.
	overridden map[resource.Key]bool
}

// migrated is the route of a unit for one service.
type migrated struct {
	http *route.HTTPConf
	tcp  *route.TCPConf
}

// unit returns the policies of a unit. Weaker units must have been converted.
func (m *migration) unit(u *successor.Unit) []policy.Migrated {
	conf := toolkit.LegacyConf[Conf](u.Policy)
	if conf == nil {
		return nil
	}
	services := u.To
	if u.All {
		services = nil
		for _, s := range m.in.Index.View.Services() {
			if s.ID.Kind == mesh.KindTag && !m.plan.Dominated(u, s.Tag) {
				services = append(services, s.Tag)
			}
		}
	}
	byService := map[string]*migrated{}
	m.migrated[u] = byService
	if len(services) == 0 && (len(conf.HTTP) > 0 || balancerOf(conf.LoadBalancer) != nil) {
		m.overridden[u.Policy.Key] = true
	}
	http, tcp := policy.Migrated{Kind: route.KindHTTP}, policy.Migrated{Kind: route.KindTCP}
	to := func(p *policy.Migrated, service string, c resource.Conf) {
		if p.Spec == nil {
			p.Name, p.From, p.Notes = u.Name, []resource.Key{u.Policy.Key}, slices.Clone(u.Notes)
			p.Spec = &resource.Policy{Shape: inline, TargetRef: &u.Target}
		}
		p.Spec.To = append(p.Spec.To,
			resource.PolicyItem{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: service}, Conf: c})
	}
	for _, s := range services {
		var weaker []*route.HTTPConf
		overrides := false
		for _, w := range u.Weaker {
			if x := m.migrated[w][s]; x != nil {
				overrides = true
				if x.http != nil {
					weaker = append(weaker, x.http)
				}
			}
		}
		t := &translation{in: m.in, service: s, conf: conf}
		if t.plain() && !overrides {
			continue
		}
		x := &migrated{}
		byService[s] = x
		if t.requests() {
			x.http = t.http(weaker)
			to(&http, s, x.http)
			addNotes(&http, t.notes)
		} else {
			x.tcp = t.tcp()
			to(&tcp, s, x.tcp)
			addNotes(&tcp, t.notes)
		}
	}
	var out []policy.Migrated
	for _, p := range []policy.Migrated{http, tcp} {
		if p.Spec == nil {
			continue
		}
		if u.All {
			successor.AddNote(&p.Notes, "a targetRef route applies to one service, so the policy has an item for each existing "+
				"service, and a new service needs another item")
		}
		out = append(out, p)
	}
	if b := m.balancing(u, conf, services); b != nil {
		out = append(out, *b)
	}
	return out
}

// inline is the document form of this plugin's kinds, with the conf next to the targetRef.
var inline = &resource.PolicyShape{Inline: true}

func addNotes(p *policy.Migrated, notes []string) {
	for _, n := range notes {
		successor.AddNote(&p.Notes, n)
	}
}

// translation converts a TrafficRoute for one service.
type translation struct {
	in      *policy.MigrateInput
	service string
	conf    *Conf
	notes   []string
}

func (t *translation) notef(format string, args ...any) {
	successor.AddNote(&t.notes, fmt.Sprintf(format, args...))
}

// plain reports whether all traffic goes to the service itself.
func (t *translation) plain() bool {
	refs, self := t.refs(t.conf.Split, t.conf.Destination)
	return len(t.conf.HTTP) == 0 && (self || len(refs) == 0)
}

// refs returns the destinations of a split. self reports whether they are the service itself.
func (t *translation) refs(split []Split, tags map[string]string) (refs []route.BackendRef, self bool) {
	if len(split) == 0 && len(tags) > 0 {
		split = []Split{{Destination: tags}}
	}
	for _, s := range split {
		if s.Weight != nil && *s.Weight == 0 {
			continue
		}
		ref := route.BackendRef{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: t.service}, Weight: s.Weight}
		for k, v := range s.Destination {
			switch {
			case v == "*":
			case k == resource.TagService:
				ref.Name = v
			default:
				if ref.Tags == nil {
					ref.Tags = map[string]string{}
				}
				ref.Kind, ref.Tags[k] = kindSubset, v
			}
		}
		refs = append(refs, ref)
	}
	if len(refs) == 1 {
		refs[0].Weight = nil
		self = refs[0].Kind == mesh.KindMeshService && refs[0].Name == t.service
	}
	if !self && t.narrowed() {
		t.notef("outbounds to %s have additional tags, by which a TrafficRoute restricts its destinations; targetRef routes "+
			"do not restrict them", t.service)
	}
	return refs, self
}

// narrowed reports whether some outbound to the service has additional tags.
func (t *translation) narrowed() bool {
	for _, d := range t.in.Index.View.Dataplanes() {
		dp, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		for i := range dp.Networking.Outbound {
			if tags := dp.Networking.Outbound[i].Tags; len(tags) > 1 && tags[resource.TagService] == t.service {
				return true
			}
		}
	}
	return false
}

// speaks returns the protocol of a service. It returns false if no workload offers the service.
func (t *translation) speaks(service string) (mesh.Protocol, bool) {
	s := t.in.Index.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: service})
	if s == nil {
		return mesh.ProtocolTCP, false
	}
	return s.Protocol, true
}

// requests reports whether the service becomes part of a MeshHTTPRoute. A TrafficRoute routes
// requests if all destinations use HTTP, a MeshHTTPRoute if the service does.
func (t *translation) requests() bool {
	all := [][]route.BackendRef{}
	rest, _ := t.refs(t.conf.Split, t.conf.Destination)
	all = append(all, rest)
	for i := range t.conf.HTTP {
		refs, _ := t.refs(t.conf.HTTP[i].Split, t.conf.HTTP[i].Destination)
		all = append(all, refs)
	}
	legacy, known := true, false
	for _, refs := range all {
		for i := range refs {
			if p, ok := t.speaks(refs[i].Name); ok {
				legacy, known = legacy && p.HTTP(), true
			}
		}
	}
	p, offered := t.speaks(t.service)
	switch legacy = legacy && known; {
	case legacy && !p.HTTP() && offered:
		t.notef("%s uses %s: its requests were routed because all destinations use HTTP; now its connections are routed",
			t.service, p)
	case legacy && !p.HTTP():
		t.notef("no workload offers %s, so a MeshHTTPRoute does not know that it uses HTTP, and its connections are routed "+
			"instead of its requests; add the tag to a Dataplane, or route the destinations directly", t.service)
	}
	return legacy && p.HTTP()
}

// tcp returns the route for connections.
func (t *translation) tcp() *route.TCPConf {
	refs, _ := t.refs(t.conf.Split, t.conf.Destination)
	if len(t.conf.HTTP) > 0 {
		t.notef("conf.http has no effect on connections to %s", t.service)
	}
	return &route.TCPConf{Rules: []route.TCPRule{{Default: route.TCPAction{BackendRefs: &refs}}}}
}
