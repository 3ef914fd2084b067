package explaindns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// maxOrigins is the maximum number of servers in a reason.
const maxOrigins = 3

// origins names the servers that answer the clients of intercepted network namespaces. It returns
// "" if there are none.
func (x *dnsQuestion) origins() string {
	var out []string
	for _, o := range x.in.Origins {
		where := "the agent's network namespace"
		if o.Netns != "" {
			where = o.Netns
		}
		out = append(out, o.Address+" in "+where)
	}
	if len(out) == 0 {
		return ""
	}
	more := ""
	if n := len(out) - maxOrigins; n > 0 {
		out, more = out[:maxOrigins], fmt.Sprintf(" (and %d more)", n)
	}
	return "; a client in an intercepted network namespace gets the answer of the server that it queries: " +
		strings.Join(out, ", ") + more
}

// rebind explains which addresses are dropped from the answer to a name outside the mesh. It
// returns "" if none but virtual addresses are.
func (x *dnsQuestion) rebind(name string) string {
	r := &x.in.Rebind
	if r.Mode != "protect" {
		return ""
	}
	for _, n := range r.Exceptions {
		if name == n || strings.HasSuffix(name, "."+n) {
			return "; it may have private addresses, because dns.rebindExceptions lists " + n
		}
	}
	return "; loopback, link-local, and private addresses are dropped from the answer (dns.rebind: protect)"
}

// outside explains how the dataplane's proxy treats a name outside the mesh: which policies
// permit it, and where the proxy sends its connections. It returns "" if no policy mentions the
// name.
func (x *dnsQuestion) outside(name string) string {
	if x.proxy == nil {
		return ""
	}
	list, err := explain.ProxyInForce(x.mesh, x.proxy.Name)
	if err != nil {
		return ""
	}
	var out []string
	for i := range list {
		for j := range list[i].Permits {
			p := &list[i].Permits[j]
			below, wildcard := strings.CutPrefix(p.Value, "*")
			if p.Value != name && !(wildcard && below != "" && strings.HasSuffix(name, below) && len(name) > len(below)) {
				continue
			}
			on := "on all ports"
			if p.Port != 0 {
				on = fmt.Sprintf("on port %d", p.Port)
			}
			out = append(out,
				fmt.Sprintf("for %s %s the proxy connects to %s (%s %s)", p.Protocol, on, p.Reaches, list[i].Type, p.Value))
		}
	}
	return strings.Join(slices.Compact(out), "; ")
}
