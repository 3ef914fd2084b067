package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Claimant returns the name of a service that claims a hostname.
func Claimant(c api.DNSClaim) string {
	if c.Service == "" {
		return "another service"
	}
	return c.Mesh + "/" + c.Kind + "/" + c.Service
}

// DNSPorts returns the ports of a hostname.
func DNSPorts(n *api.DNSName) string {
	var out []string
	for _, p := range n.Ports {
		out = append(out, fmt.Sprint(p.Port))
	}
	return strings.Join(out, ",")
}

// DNSOrigin returns the source of a service's hostname.
func DNSOrigin(origin, generator string) string {
	switch origin {
	case "generator":
		return "HostnameGenerator/" + generator
	case "virtual":
		return "VirtualOutbound/" + generator
	case "status":
		return "status"
	}
	return "kuma.io/service"
}

func DNSTable(w, notes io.Writer, d *api.DNS, format string) {
	if format == "name" {
		for i := range d.Items {
			Println(w, d.Items[i].Name)
		}
		return
	}
	if d.Reason != "" {
		Printf(notes, "the resolver is %s: %s\n", d.State, d.Reason)
	}
	headers := []string{"NAME", "ADDRESSES", "PORTS", "MESH", "SERVICE", "BECAUSE OF"}
	if format == "wide" {
		headers = append(headers, "ZONE", "CONTESTED BY")
	}
	t := NewTable(w, headers...)
	for i := range d.Items {
		n := &d.Items[i]
		cells := []string{n.Name, strings.Join(Texts(n.Addresses), ","), DNSPorts(n), n.Mesh,
			n.Kind + "/" + n.Service, DNSOrigin(n.Origin, n.Generator)}
		if format == "wide" {
			cells = append(cells, n.Zone, strings.Join(Each(n.Contested, Claimant), ","))
		}
		t.Row(cells...)
	}
	t.Flush()
	for i := range d.Items {
		for _, c := range d.Items[i].Contested {
			Printf(w, "%s: not for %s: %s\n", d.Items[i].Name, Claimant(c), c.Why)
		}
	}
	var owned []string
	for _, s := range d.Suffixes {
		if s.Origin != "range" {
			owned = append(owned, s.Name)
		}
	}
	Printf(w, "owned suffixes: %s\n", strings.Join(owned, ", "))
	for _, o := range d.Origins {
		where := "the agent's network namespace"
		if o.Netns != "" {
			where = o.Netns
		}
		Printf(w, "clients in %s query %s: %d queries, %d answers\n", where, o.Address, o.Queries, o.Answers)
	}
	for _, s := range d.Unowned {
		Printf(w, "not owned: %s of HostnameGenerator %s: %s\n", s.Name, s.Generator, s.Reason)
	}
	if d.Problem != "" {
		Printf(w, "problem: %s\n", d.Problem)
	}
}

// Upstream returns an upstream with its protocol and state.
func Upstream(u api.DNSUpstream) string {
	out := u.Address
	if u.Protocol != "udp" {
		out += " over " + u.Protocol
	}
	switch {
	case u.Problem != "":
		out += " (" + u.Problem + ")"
	case u.Down:
		out += " (does not respond)"
	}
	return out
}

// upstreams writes the upstreams by domain, if there are several groups.
func upstreams(w io.Writer, list []api.DNSUpstream) {
	groups := api.UpstreamGroups(list)
	for _, group := range groups {
		names := "other names"
		if d := group[0].Domains; len(d) > 0 {
			names = strings.Join(d, ", ")
		} else if len(groups) == 1 {
			return
		}
		Printf(w, "  upstreams of %s: %s\n", names, strings.Join(Each(group, Upstream), ", "))
	}
}

// DNSExplanation writes for people why a name resolves as it does.
func DNSExplanation(w io.Writer, x *explaindns.DNS) {
	c := &x.Client
	Printf(w, "%s: %s\n", x.Verdict, x.Reason)
	if c.Dataplane != nil {
		sees := "all names"
		if !c.All {
			sees = "the names of services that the dataplane reaches"
		}
		asks := ""
		if c.Address != "" {
			asks = " sends queries from " + c.Address + " and"
		}
		Printf(w, "  client     %s%s gets %s, with %s addresses\n", c.Dataplane.String(), asks, sees,
			strings.Join(c.Families, " and "))
	}
	if c.Note != "" {
		Printf(w, "             %s\n", c.Note)
	}
	if len(c.Search) > 0 {
		Printf(w, "  search     %s, ndots %d\n", strings.Join(c.Search, " "), c.Ndots)
	}
	for i := range x.Steps {
		s := &x.Steps[i]
		Printf(w, "  query      %s -> %s: %s\n", s.Name, s.Outcome, s.Reason)
		for _, r := range s.Records {
			Printf(w, "             %s %s\n", r.Type, r.Data)
		}
		if s.Domain != "" {
			Printf(w, "             upstreams %s\n", strings.Join(Each(s.Upstreams, Upstream), ", "))
		}
		if s.Owner != nil {
			for _, o := range s.Owner.Contested {
				Printf(w, "             not for %s: %s\n", Claimant(o), o.Why)
			}
		}
		if r := s.Reachable; r != nil {
			leads := "its proxy reaches the service"
			if !r.Reachable {
				leads = "its proxy does not reach the service"
			}
			Printf(w, "             %s: %s\n", leads, r.Reason)
		}
	}
}
