package resolver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/forward"
)

func unique(list []string) []string {
	list = slices.Sorted(slices.Values(list))
	return slices.Compact(list)
}

// State returns the state of the resolver, with its table.
func (r *Resolver) State() explaindns.Resolver {
	k, now := r.keys.Load(), r.state.Load()
	out := explaindns.Resolver{Table: r.table.Load(), Unknown: *r.failing.Load(), DNSStatus: api.DNSStatus{
		State: api.DNSServing, Listen: append([]string{}, now.listen...), Holder: r.holder(),
		Suffixes: []api.DNSSuffix{}, Views: []api.DNSView{}, Upstreams: []api.DNSUpstream{}, TTL: int(k.ttl),
		NegativeTTL:   int(k.negative),
		ReachableOnly: k.names.ReachableOnly, Canary: names.Canary, CanaryAddress: names.CanaryAddr(),
		QueryLog: r.queries.status(), Marked: r.marked,
	}}
	if r.forward != nil {
		r.addUpstreams(&out)
	}
	out.Problem = joinReasons(out.Problem, r.views.problem())
	kept := r.kept()
	if len(kept) > 0 {
		out.Problem = joinReasons(out.Problem, fmt.Sprintf("the names of mesh %s are unknown, so names below the suffixes "+
			"of the meshes that no other mesh has fail; see the problem of the mesh", strings.Join(kept, ", ")))
	}
	if t := out.Table; t != nil {
		addTable(&out.DNSStatus, t)
	}
	switch {
	case len(now.listen) == 0:
		out.State, out.Reason = api.DNSOff, now.reason
		if r.taken {
			out.Reason += "; the agent tries again every second"
		}
	case now.failed != "":
		out.State, out.Reason = api.DNSFailed, now.failed+"; restart the agent"
	case r.o.Suspended != "":
		out.State, out.Reason = api.DNSPending, "names of the meshes fail, and others are forwarded: "+r.o.Suspended
	case len(kept) > 0 && (out.Table == nil || out.Table.Pending):
		out.State, out.Reason = api.DNSPending, "names below the suffixes of the meshes fail, because no mesh is known"
	case out.Table == nil || out.Table.Pending:
		out.State, out.Reason = api.DNSPending,
			"there is no mesh yet, so names below the suffixes of the meshes fail; apply a Mesh"
	}
	return out
}

func (r *Resolver) addUpstreams(out *explaindns.Resolver) {
	f := r.forward.Stats()
	out.Problem = f.Problem
	out.Search, out.Ndots = r.forward.Search()
	if f.Loops > 0 {
		out.Problem = joinReasons(out.Problem,
			fmt.Sprintf("%d queries of the agent were redirected back to it: exempt them from "+
				"the redirection of port 53, or use another server", f.Loops))
	}
	for i := range f.Servers {
		s := &f.Servers[i]
		out.Upstreams = append(out.Upstreams, upstreamOf(s))
	}
	for i := range f.Origins {
		o := &f.Origins[i]
		out.Origins = append(out.Origins, api.DNSOrigin{Netns: o.Network, DNSUpstream: upstreamOf(&o.ServerStats)})
	}
	for _, group := range api.UpstreamGroups(out.Upstreams) {
		out.Problem = joinReasons(out.Problem, upstreamProblem(group))
	}
	out.Rebind = api.DNSRebind{Mode: r.keys.Load().rebind, Exceptions: r.keys.Load().exceptions,
		Dropped: r.forward.Dropped()}
	out.Cache = api.DNSCache{Entries: f.Cache.Entries, Bytes: f.Cache.Bytes, Hits: f.Cache.Hits,
		Misses: f.Cache.Misses}
}

// upstreamOf converts the counters of an upstream.
func upstreamOf(s *forward.ServerStats) api.DNSUpstream {
	return api.DNSUpstream{Address: s.Addr.String(), Domains: s.Domains, Protocol: string(cmp.Or(s.Protocol, forward.UDP)),
		ServerName: s.ServerName, Problem: s.Problem, Down: s.Down, RTT: s.RTT.Seconds(), Queries: s.Queries,
		Answers: s.Answers, Failures: s.Failures, Timeouts: s.Timeouts}
}

// upstreamProblem returns the problem of the upstreams for the same domains, or "".
func upstreamProblem(group []api.DNSUpstream) (out string) {
	names, key := "only names of the meshes and cached names resolve", "dns.upstreams or resolv.conf"
	if d := group[0].Domains; len(d) > 0 {
		names, key = "names in "+strings.Join(d, ", ")+" do not resolve, except cached ones", "dns.forward"
	}
	var servers []string
	for i := range group {
		u := &group[i]
		if u.Problem != "" {
			out = joinReasons(out, fmt.Sprintf("upstream %s: %s", u.Address, u.Problem))
		}
		if u.Down {
			servers = append(servers, u.Address)
		}
	}
	if len(servers) == len(group) {
		out = joinReasons(fmt.Sprintf("no upstream responds (%s), so %s; check %s", strings.Join(servers, ", "), names, key),
			out)
	}
	return out
}

func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func addTable(out *api.DNSStatus, t *names.Table) {
	out.Names = len(t.Names)
	suffixes := func(list []names.Suffix) (to []api.DNSSuffix) {
		for _, s := range list {
			to = append(to, api.DNSSuffix{Name: s.Name, Origin: s.Origin, Generator: s.Generator.Name, Reason: s.Reason})
		}
		return to
	}
	out.Suffixes = append(out.Suffixes, suffixes(t.Suffixes)...)
	out.Unowned = suffixes(t.Unowned)
	for i := range t.Views {
		v := &t.Views[i]
		x := api.DNSView{Address: v.Addr, All: v.All, Families: []string{}}
		for _, k := range v.Dataplanes {
			x.Dataplanes = append(x.Dataplanes, k.Mesh+"/"+k.Name)
		}
		if v.V4 {
			x.Families = append(x.Families, resource.IPFamilyIPv4)
		}
		if v.V6 {
			x.Families = append(x.Families, resource.IPFamilyIPv6)
		}
		out.Views = append(out.Views, x)
	}
}

// results groups query counts by type and result.
func results(counts []dns.Count) map[[2]string]uint64 {
	out := map[[2]string]uint64{}
	for _, c := range counts {
		out[[2]string{c.Type, result(&c)}] += c.N
	}
	return out
}

// result returns the value of the result label.
func result(c *dns.Count) string {
	switch c.Source {
	case "local":
		if c.Rcode == 3 {
			return "local_nxdomain"
		}
		return "local"
	case "cache", "forwarded":
		return c.Source
	}
	switch c.Rcode {
	case 0:
		return "dropped"
	case 1:
		return "formerr"
	case 2:
		return "servfail"
	case 4:
		return "notimp"
	case 5:
		return "refused"
	}
	return "error"
}

// Line returns the resolver's part of the agent status.
func (r *Resolver) Line() *api.DNSLine {
	s := r.State()
	out := &api.DNSLine{State: s.State, Reason: s.Reason, Listen: s.Listen, Holder: s.Holder, Names: s.Names,
		Queries: map[string]uint64{}, Upstreams: s.Upstreams}
	for k, n := range results(r.server.Counts()) {
		out.Queries[k[1]] += n
	}
	return out
}

// Shed drops cached answers if they use much memory.
func (r *Resolver) Shed() {
	if r.forward != nil {
		r.forward.Shed()
	}
}

// forwardedDomains lists the domains of dns.forward.
func forwardedDomains(list []api.DNSUpstream) string {
	var out []string
	for i := range list {
		out = append(out, list[i].Domains...)
	}
	return strings.Join(unique(out), ", ")
}
