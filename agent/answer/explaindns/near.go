package explaindns

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/dns/table"
)

// because returns who owns a name, and why.
func (x *dnsQuestion) because(n *names.Name, name string) string {
	if n == nil {
		_, below, _ := x.names.Served().Lookup(name, table.TypeA, nil)
		if why := x.in.Table.Local(below); why != "" && name != names.Canary {
			return fmt.Sprintf("the agent answers %s and names below it: %s", below, why)
		}
		if a, ok := addrOf(name); ok {
			return fmt.Sprintf("the virtual address %s has this name", a)
		}
		return "the name is the agent's canary"
	}
	service := fmt.Sprintf("%s %s of mesh %s", shownKind(n.Kind), n.Service(), n.Mesh)
	switch n.Origin {
	case mesh.OriginStatus:
		return service + " has it in its status"
	case mesh.OriginGenerator:
		return service + " has it from HostnameGenerator " + n.Generator.Name
	case mesh.OriginVirtual:
		return service + " has it from VirtualOutbound " + n.Generator.Name
	case mesh.OriginHost:
		return fmt.Sprintf("%s has it as the host of ExternalService %s", service, n.Generator.Name)
	case mesh.OriginPolicy:
		return service + " gives it a virtual address, on which the proxies that it selects listen"
	}
	return service + " has it by its tag kuma.io/service"
}

func (x *dnsQuestion) empty(n *names.Name) string {
	switch {
	case n == nil:
		return "the table has only names below it"
	case len(n.Addrs) == 0:
		return x.because(n, n.Name) + ", but has no virtual address"
	}
	return fmt.Sprintf("%s, but has no address of the families that the client gets: %s",
		x.because(n, n.Name), strings.Join(x.out.Client.Families, ", "))
}

// missing explains why a name does not exist for this client.
func (x *dnsQuestion) missing(name string, is *names.Classification) string {
	n, below := is.Owner, is.Suffix
	if n != nil && is.Hidden {
		return fmt.Sprintf("%s, but the dataplane cannot reach it: dns.reachableOnly hides it", x.because(n, n.Name))
	}
	if n != nil {
		return fmt.Sprintf("%s %s of mesh %s has no port with this name", shownKind(n.Kind), n.Service(), n.Mesh)
	}
	why := "it is below " + below
	if local := x.in.Table.Local(below); local != "" {
		why += ", whose names never leave the host: " + local
		if strings.HasSuffix(below, ".arpa") {
			why += x.origins()
		}
		return why
	}
	others := ""
	for _, s := range x.in.Table.Suffixes {
		switch {
		case s.Name != below:
		case s.Origin == names.OriginGenerator:
			why += ", the suffix of HostnameGenerator " + s.Generator.Name + " (" + s.Reason + ")"
			if s.Asked {
				others = x.origins()
			}
		case s.Origin == names.OriginRange:
			why += ", the reverse names of a range of virtual addresses"
		default:
			why += ", which dns.suffixes lists"
		}
	}
	why += ", and no service has the name"
	if near := strict.Nearest(name, x.near(below)); near != "" {
		why += fmt.Sprintf("; did you mean %s?", near)
	}
	return why + others
}

// maxNearNames is the maximum number of names that are compared with a misspelled name.
const maxNearNames = 1024

// near returns names below a suffix that the client may see.
func (x *dnsQuestion) near(below string) (out []string) {
	for _, n := range x.in.Table.Names {
		if strings.HasSuffix(n.Name, "."+below) && (x.in.Visible == nil || x.in.Visible(NameKey(n))) &&
			len(out) < maxNearNames {
			out = append(out, n.Name)
		}
	}
	return out
}

// reachable explains whether the dataplane can reach the owner of a name at its virtual address.
func (x *dnsQuestion) reachable(n *names.Name) *explain.Why {
	switch {
	case x.proxy == nil:
		return nil
	case x.proxy.Mesh != n.Mesh:
		return &explain.Why{
			Cause: mesh.CauseNoAddress,
			Reason: fmt.Sprintf("the address belongs to mesh %s, and a proxy of mesh %s does not listen on it",
				n.Mesh, x.proxy.Mesh),
		}
	}
	v := x.mesh.View
	list := v.Ports(n.Resource)
	if n.Kind == mesh.KindTag {
		list = []*mesh.Service{v.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: n.Tag})}
	}
	reach := x.mesh.Policies.Reach(x.proxy)
	var out *explain.Why
	for _, s := range list {
		if s == nil {
			continue
		}
		verdict := reach.Of(s)
		why := explain.WhyReach(x.mesh.Policies, x.spec, s, verdict)
		if verdict.Cause == mesh.CauseOutbound {
			why.Reachable, why.Reason = false, why.Reason+", at a different address, and the proxy does not listen on this one"
		}
		if out == nil || why.Reachable && !out.Reachable {
			out = &why
		}
	}
	return out
}
