package explaindns

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Resolver is the state of a node's resolver, with its names.
type Resolver struct {
	api.DNSStatus
	Table *names.Table // nil before the first table
	// Search and Ndots are from the node's resolv.conf.
	Search []string
	Ndots  int
	// Unknown says which names fail for clients whose view is not known yet.
	Unknown names.Unknown
}

// DNSInput is the input of an explanation.
type DNSInput struct {
	Resolver
	Meshes map[string]*generate.Mesh // by name
	// Visible reports whether the user may see a resource's claims to names. nil means that all
	// are visible.
	Visible func(resource.Key) bool
}

// Limits of a [explain.DNSQuestion].
const (
	maxSearch = 32
	maxNdots  = 15
)

// dnsQuestion is a question in progress.
type dnsQuestion struct {
	in    *DNSInput
	names *names.Classifier
	view  *table.View
	known bool // the client has its own view
	// The dataplane of the client, with its spec and mesh; nil if there is none.
	proxy  *resource.Resource
	spec   *resource.Dataplane
	mesh   *generate.Mesh
	claims names.Claims
	out    *DNS
}

// Name explains how a name resolves. The error is a [explain.QuestionError] if the question is
// invalid.
func Name(in DNSInput, q *explain.DNSQuestion) (*DNS, error) {
	name := strings.ToLower(q.Name)
	if a, err := netip.ParseAddr(name); err == nil {
		name = table.ReverseName(a) + "."
	}
	x := &dnsQuestion{in: &in, out: &DNS{Name: q.Name, Steps: []DNSStep{}}}
	x.names = in.Table.Classifier()
	if _, err := x.names.Classify(name, nil); err != nil {
		return nil, &explain.QuestionError{Field: "name", Reason: err.Error()}
	}
	c := &x.out.Client
	c.All, c.Families, c.Search, c.Ndots = true, []string{resource.IPFamilyIPv4, resource.IPFamilyIPv6},
		append([]string{}, in.Search...), max(in.Ndots, 1)
	if q.Search != nil {
		c.Search = q.Search
	}
	if q.Ndots != nil {
		c.Ndots = *q.Ndots
	}
	if len(c.Search) > maxSearch {
		return nil, &explain.QuestionError{Field: "search",
			Reason: fmt.Sprintf("has %d domains; at most %d are allowed", len(c.Search), maxSearch)}
	}
	if c.Ndots < 0 || c.Ndots > maxNdots {
		return nil, &explain.QuestionError{Field: "ndots",
			Reason: fmt.Sprintf("%d is not possible; 0 to %d are allowed", c.Ndots, maxNdots)}
	}
	x.view = in.Table.OthersView().DNS()
	if q.Dataplane != "" {
		if err := x.dataplane(cmp.Or(q.Mesh, resource.DefaultMesh), q.Dataplane); err != nil {
			return nil, err
		}
	}
	x.ask(name)
	return x.out, nil
}

// dataplane sets the client to the workload of a dataplane.
func (x *dnsQuestion) dataplane(in, name string) error {
	m := x.in.Meshes[in]
	if m == nil {
		return &explain.QuestionError{Field: "mesh", Reason: fmt.Sprintf("mesh %q does not exist", in)}
	}
	r := m.View.Dataplane(name)
	if r == nil {
		return &generate.NotFoundError{Mesh: in, Name: name}
	}
	spec, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return fmt.Errorf("%s: unexpected spec %T", r.Key, r.Spec)
	}
	x.proxy, x.spec, x.mesh = r, spec, m
	ref, c := api.RefOf(r.Key), &x.out.Client
	c.Dataplane = &ref
	v, local := x.in.Table.ViewOf(names.Mesh{View: m.View, Policies: m.Policies}, r)
	if !local {
		c.Note = "its proxy is not connected to this node; the answers shown are those it would get here"
	}
	addr, err := netip.ParseAddr(spec.Networking.Address)
	switch {
	case err != nil:
		c.Note = fmt.Sprintf("networking.address %q is not an IP address, so the resolver cannot identify the workload",
			spec.Networking.Address)
	case addr.IsLoopback():
		c.Note = "workloads with a loopback address cannot be distinguished: all of them see all names"
	default:
		c.Address = addr.String()
	}
	if v == nil {
		return nil
	}
	x.view, c.All, x.known = v.DNS(), v.All, local && v.Addr.IsValid()
	if !v.V4 {
		c.Families = []string{resource.IPFamilyIPv6}
	} else if !v.V6 {
		c.Families = []string{resource.IPFamilyIPv4}
	}
	if n := len(v.Dataplanes); n > 1 {
		c.Note = fmt.Sprintf("%d dataplanes have the address %s; each sees the names of all of them", n, v.Addr)
	}
	return nil
}

// ask queries a name like the resolver of libc: it applies the search list to names with few
// dots, and stops at the first result.
func (x *dnsQuestion) ask(name string) {
	c := &x.out.Client
	whole := strings.HasSuffix(name, ".")
	name = strings.TrimSuffix(name, ".")
	var list []string
	if !whole {
		for _, s := range c.Search {
			list = append(list, name+"."+strings.Trim(strings.ToLower(s), "."))
		}
	}
	if whole || strings.Count(name, ".") >= c.Ndots {
		list = slices.Insert(list, 0, name)
	} else {
		list = append(list, name)
	}
	found := map[string]string{} // outcome → first name with it
	for _, n := range list {
		step := x.step(n)
		x.out.Steps = append(x.out.Steps, step)
		if found[step.Outcome] == "" {
			found[step.Outcome] = n
		}
		if step.Outcome == DNSResolves {
			break
		}
	}
	last := x.out.Steps[len(x.out.Steps)-1]
	switch first := found[DNSForwarded]; {
	case last.Outcome == DNSResolves && first != "":
		x.out.Verdict, x.out.Reason = DNSResolves, fmt.Sprintf("%s, unless an upstream knows %s", last.Reason, first)
	case last.Outcome == DNSResolves:
		x.out.Verdict, x.out.Reason = DNSResolves, last.Reason
	case first != "":
		x.out.Verdict, x.out.Reason = DNSForwarded, "upstreams decide: the agent forwards the query for "+first
	default:
		for _, o := range [...]string{DNSFails, DNSEmpty, DNSNone} {
			if n := found[o]; n != "" {
				i := slices.IndexFunc(x.out.Steps, func(s DNSStep) bool { return s.Name == n })
				x.out.Verdict, x.out.Reason = o, x.out.Steps[i].Reason
				return
			}
		}
	}
}

// step explains the result of one query.
func (x *dnsQuestion) step(name string) DNSStep {
	out := DNSStep{Name: name, Outcome: DNSNone, Records: []DNSRecord{}}
	t := x.in.Table
	is, err := x.names.Classify(name, x.view)
	if err != nil {
		out.Reason = "the name is invalid: " + err.Error()
		return out
	}
	out.Suffix = is.Suffix
	for _, qtype := range [...]uint16{table.TypeA, table.TypeAAAA, table.TypeSRV, table.TypePTR} {
		out.Records = append(out.Records, x.records(name, qtype)...)
	}
	n := is.Owner
	if n != nil {
		owner := DNSNameOf(n, &x.claims, x.in.Visible)
		out.Owner = &owner
		out.Reachable = x.reachable(n)
	}
	switch {
	case x.fails(name):
		out.Records = []DNSRecord{}
		out.Outcome, out.Reason = DNSFails, "the answer depends on the view of the client, which is not known yet: it is "+
			"known when the client's Envoy is connected, at the latest a minute after the start of the agent"
	case is.Class == names.ClassPending:
		why := "there is no mesh yet"
		if missing := x.names.Missing(); len(missing) > 0 {
			why = "the names of mesh " + strings.Join(missing, ", ") + " are unknown (see nearside status)"
		}
		out.Outcome, out.Reason = DNSFails, why+", so it is unknown which names exist below "+is.Suffix
	case is.Class == names.ClassForwarded:
		out.Outcome, out.Reason = DNSForwarded,
			"not a name of the meshes, and not below one of their suffixes: the query is forwarded"
		if n != nil && n.Origin == mesh.OriginHost {
			out.Reason = x.because(n, name) + ", but the proxy of this client does not serve it: the query is forwarded"
		}
		out.Reason += x.origins() + x.rebind(name)
		if n != nil && n.Origin == mesh.OriginPolicy {
			out.Reason += "; " + x.because(n, name) + ", but the proxy of this client does not"
		}
		if behind, ok := strings.CutPrefix(name, table.Passthrough("")); ok {
			out.Reason = "the query for " + behind + " is forwarded, regardless of the names of the meshes"
		}
		asked := strings.TrimPrefix(name, table.Passthrough(""))
		if out.Upstreams, out.Domain = api.UpstreamsFor(x.in.Upstreams, asked); out.Domain != "" {
			out.Reason += " to the upstreams of " + out.Domain + " (dns.forward)"
		}
		for _, s := range t.Unowned {
			if strings.HasSuffix(name, "."+s.Name) {
				out.Reason += fmt.Sprintf("; the suffix %s of HostnameGenerator %s is not owned: %s",
					s.Name, s.Generator.Name, s.Reason)
			}
		}
		if said := x.outside(name); said != "" {
			out.Reason += "; " + said
		}
	case is.Class == names.ClassAbsent:
		out.Reason = x.missing(name, &is)
	case len(out.Records) > 0:
		out.Outcome, out.Reason = DNSResolves, x.because(n, name)
	default:
		out.Outcome, out.Reason = DNSEmpty, x.empty(n)
	}
	return out
}

// records returns the records of a type from the resolver's answer.
func (x *dnsQuestion) records(name string, qtype uint16) (out []DNSRecord) {
	wire, err := new(mdns.Msg).SetQuestion(mdns.Fqdn(name), qtype).Pack()
	if err != nil {
		return nil
	}
	var q table.Query
	reply, _ := table.NewAnswers(x.names.Served(), nil).Others(x.view).Resolve(&q, wire, netip.Addr{}, 0, true, nil)
	var m mdns.Msg
	if err := m.Unpack(reply); err != nil {
		return nil
	}
	for _, rr := range m.Answer {
		data := strings.TrimPrefix(rr.String(), rr.Header().String())
		out = append(out, DNSRecord{mdns.TypeToString[qtype], strings.TrimSuffix(data, ".")})
	}
	return out
}

// fails reports whether the query fails because the view of the client is not known yet.
func (x *dnsQuestion) fails(name string) bool {
	if x.known {
		return false
	}
	u := &x.in.Unknown
	view := u.Loopback
	if x.out.Client.Address != "" {
		view = u.Remote
	}
	if view == nil {
		view = x.view
	}
	return table.NewAnswers(x.names.Served(), nil).Others(view).Failing(u.Names).Fails(name)
}

// addrOf returns the address of a reverse name.
func addrOf(name string) (netip.Addr, bool) {
	if v4, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		parts := strings.Split(v4, ".")
		slices.Reverse(parts)
		a, err := netip.ParseAddr(strings.Join(parts, "."))
		return a, err == nil
	}
	v6, ok := strings.CutSuffix(name, ".ip6.arpa")
	parts := strings.Split(v6, ".")
	if !ok || len(parts) != 32 {
		return netip.Addr{}, false
	}
	slices.Reverse(parts)
	var b strings.Builder
	for i, p := range parts {
		if i > 0 && i%4 == 0 {
			b.WriteByte(':')
		}
		b.WriteString(p)
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}
