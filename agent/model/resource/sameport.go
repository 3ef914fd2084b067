package resource

import (
	"cmp"
	"slices"
	"strconv"
)

// Inbounds of one dataplane may have the same address and port if they belong to different
// services: on Kubernetes, a regular and a headless Service that select the same port of a pod. One
// listener serves all of them.

// validateShared checks an inbound against the first one at its address and port. One listener
// serves both, so they must lead to the same port of the workload.
func (n *Networking) validateShared(v *Validator, i int, seen map[string]int, at string) {
	first, ok := seen[at]
	if !ok {
		seen[at] = i
		return
	}
	in, other := &n.Inbound[i], &n.Inbound[first]
	for j := range i {
		same := &n.Inbound[j]
		if same.Tags[TagService] == in.Tags[TagService] && boundAt(n.boundTo(same), same.Port) == at {
			v.Field("port").Faultf("%d is already the port of inbound[%d] on %s for the same service: "+
				"keep one of them, or give each its own port", in.Port, j, n.boundTo(in))
			return
		}
	}
	if a, b := cmp.Or(in.ServicePort, in.Port), cmp.Or(other.ServicePort, other.Port); a != b {
		v.Field("servicePort").Faultf("%d differs from %d of inbound[%d], which has the same port %d: "+
			"one listener serves both and leads to one port of the workload; give both the same servicePort",
			a, b, first, in.Port)
	}
	if a, b := cmp.Or(in.ServiceAddress, n.boundTo(in)), cmp.Or(other.ServiceAddress, n.boundTo(other)); a != b {
		v.Field("serviceAddress").Faultf("%s differs from %s of inbound[%d], which has the same port %d: "+
			"one listener serves both and leads to one address of the workload; give both the same serviceAddress",
			a, b, first, in.Port)
	}
}

func (n *Networking) boundTo(in *Inbound) string { return cmp.Or(in.Address, n.Address) }

// SamePort returns, for each inbound, the inbounds that its listener serves, in order: the active
// ones with the same address and port, or the ignored ones if it is ignored. It returns nil if each
// inbound has its own address and port. The first inbound of a list stands for the listener.
func (n *Networking) SamePort() [][]int {
	ports := make(map[uint32]bool, len(n.Inbound))
	for i := range n.Inbound {
		ports[n.Inbound[i].Port] = true
	}
	if len(ports) == len(n.Inbound) {
		return nil
	}
	key := func(in *Inbound) string {
		return boundAt(n.boundTo(in), in.Port) + " " + strconv.FormatBool(in.State == InboundIgnored)
	}
	at := make(map[string][]int, len(n.Inbound))
	for i := range n.Inbound {
		k := key(&n.Inbound[i])
		at[k] = append(at[k], i)
	}
	if len(at) == len(n.Inbound) {
		return nil // same port, other addresses
	}
	out := make([][]int, len(n.Inbound))
	for i := range n.Inbound {
		out[i] = at[key(&n.Inbound[i])]
	}
	return out
}

// Spread adds to a list of inbounds those that share a listener with one of them, sorted. shared is
// the result of [Networking.SamePort].
func Spread(shared [][]int, list []int) []int {
	if shared == nil {
		return list
	}
	var out []int
	for _, i := range list {
		out = append(out, shared[i]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
