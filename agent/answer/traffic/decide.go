package traffic

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// vote is the interpretation of a line by one family of formats.
type vote struct {
	listeners []*listener // listeners that may have logged the line; empty if its words match no listener
	// backends are services that the line names although no listener leads to them, for example
	// because it was removed.
	backends []int
	name     string // words that match no listener
	to       netip.AddrPort
}

// vote narrows the listeners whose words match a line by the other values of the line. A value is
// ignored if no listener matches it: the line may be older than the config, and clients choose the
// host.
func (u *Usage) vote(f *family, e logline.Entry) vote {
	v := vote{name: strings.Join(e.Words, " ")}
	for _, i := range e.Members {
		if !slices.Contains(v.listeners, f.listeners[i]) {
			v.listeners = append(v.listeners, f.listeners[i])
		}
	}
	if len(v.listeners) == 0 && f.out {
		for _, w := range e.Words {
			v.backends = append(v.backends, u.lookup.named[w]...)
		}
		return v
	}
	narrow := func(fits func(*listener) bool) bool {
		var left []*listener
		for _, o := range v.listeners {
			if fits(o) {
				left = append(left, o)
			}
		}
		if len(left) > 0 {
			v.listeners = left
		}
		return len(left) > 0
	}
	for _, i := range [...]int{atRawCluster, atCluster} {
		c := e.Values[i]
		if hasValue(c) && !narrow(func(o *listener) bool { return o.clusters[c] }) && f.out && len(u.lookup.cluster[c]) > 0 {
			return vote{backends: u.lookup.cluster[c]}
		}
	}
	local, isLocal := addrPort(e.Values[atLocal])
	if isLocal {
		v.to = local
		if !narrow(func(o *listener) bool { return o.direction != passthrough && o.address == local }) {
			narrow(func(o *listener) bool { return o.direction == passthrough })
		}
	}
	for _, i := range [...]int{atRemote, atHost} {
		if host, ok := addrPort(e.Values[i]); ok {
			if !isLocal {
				v.to = host
			}
			narrow(func(o *listener) bool { return o.hosts[host] })
		}
	}
	if authority := strings.ToLower(e.Values[atAuthority]); hasValue(authority) {
		host, port, _ := strings.Cut(authority, ":")
		narrow(func(o *listener) bool {
			return o.names[host] && (port == "" || port == strconv.Itoa(int(o.address.Port())))
		})
	}
	return v
}

// hasValue reports whether Envoy logged a value; it writes "-" for a missing one.
func hasValue(s string) bool { return s != "" && s != "-" }

// decide combines the votes of all families into one verdict.
func (u *Usage) decide(votes []vote) verdict {
	var from []*listener
	var to netip.AddrPort
	var backends []int
	is := map[direction]bool{}
	name := ""
	add := func(list []int) {
		for _, i := range list {
			if !slices.Contains(backends, i) {
				backends = append(backends, i)
			}
		}
	}
	for _, v := range votes {
		for _, o := range v.listeners {
			if !slices.Contains(from, o) {
				from = append(from, o)
			}
		}
		if v.to.IsValid() {
			to = v.to
		}
		if len(v.listeners) == 0 {
			name = v.name
		}
		if add(v.backends); len(v.backends) > 0 {
			is[toService] = true
		}
	}
	if len(from)+len(backends) == 0 {
		if strings.TrimSpace(name) == "" {
			return verdict{outcome: foreign}
		}
		return verdict{outcome: unknown, name: name}
	}
	for _, o := range from {
		is[o.direction] = true
		add(o.backends)
	}
	slices.Sort(backends)
	switch {
	case len(is) > 1:
		return verdict{outcome: ambiguous}
	case is[inbound]:
		return verdict{outcome: arrived}
	case is[passthrough]:
		return u.decidePassthrough(from, to)
	case !u.sameName(backends):
		return verdict{outcome: ambiguous}
	}
	return verdict{outcome: used, backends: backends}
}

// sameName reports whether all backends have the same name, such as a kuma.io/service value and its
// MeshService, or the ports of one resource. A line that matches several of them counts for each.
func (u *Usage) sameName(backends []int) bool {
	return !slices.ContainsFunc(backends, func(i int) bool {
		return u.backends.Items[i].Name != u.backends.Items[backends[0]].Name
	})
}

// decidePassthrough classifies a line by the address that the client dialed. A separate listener
// for one address has it in its own address.
func (u *Usage) decidePassthrough(from []*listener, to netip.AddrPort) verdict {
	if !to.IsValid() && len(from) == 1 && from[0].address.IsValid() &&
		!isPassthrough(from[0].name) {
		to = from[0].address
	}
	if list := u.lookup.virtual[to]; len(list) > 0 && u.sameName(list) {
		return verdict{outcome: used, backends: list}
	}
	if len(u.lookup.instance[to]) > 0 {
		return verdict{outcome: instance, to: to}
	}
	return verdict{outcome: outside}
}
