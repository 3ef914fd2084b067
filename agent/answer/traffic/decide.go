package traffic

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// vote is what one family of formats says of a line.
type vote struct {
	outlets []*outlet // that may have logged it; none for words that are of no listener
	// backends are those that the line names and to which no listener leads, as of one that is gone.
	backends []int
	name     string // words of no listener
	to       netip.AddrPort
}

// vote narrows the listeners whose words a line has by what else it says. Each value counts only
// where it fits one of them: what a line says of the past may be no longer so, and the host is the
// client's word.
func (u *Usage) vote(f *family, e logline.Entry) vote {
	v := vote{name: strings.Join(e.Words, " ")}
	for _, i := range e.Members {
		if !slices.Contains(v.outlets, f.outlets[i]) {
			v.outlets = append(v.outlets, f.outlets[i])
		}
	}
	if len(v.outlets) == 0 && f.out {
		for _, w := range e.Words {
			v.backends = append(v.backends, u.lookup.named[w]...)
		}
		return v
	}
	narrow := func(fits func(*outlet) bool) bool {
		var left []*outlet
		for _, o := range v.outlets {
			if fits(o) {
				left = append(left, o)
			}
		}
		if len(left) > 0 {
			v.outlets = left
		}
		return len(left) > 0
	}
	for _, i := range [...]int{atRawCluster, atCluster} {
		c := e.Values[i]
		if told(c) && !narrow(func(o *outlet) bool { return o.clusters[c] }) && f.out && len(u.lookup.cluster[c]) > 0 {
			return vote{backends: u.lookup.cluster[c]}
		}
	}
	local, isLocal := addrPort(e.Values[atLocal])
	if isLocal {
		v.to = local
		if !narrow(func(o *outlet) bool { return o.way != past && o.address == local }) { // no listener has it
			narrow(func(o *outlet) bool { return o.way == past })
		}
	}
	for _, i := range [...]int{atRemote, atHost} {
		if host, ok := addrPort(e.Values[i]); ok {
			if !isLocal {
				v.to = host
			}
			narrow(func(o *outlet) bool { return o.hosts[host] })
		}
	}
	if authority := strings.ToLower(e.Values[atAuthority]); told(authority) {
		host, port, _ := strings.Cut(authority, ":")
		narrow(func(o *outlet) bool {
			return o.names[host] && (port == "" || port == strconv.Itoa(int(o.address.Port())))
		})
	}
	return v
}

// told reports whether a value is one: Envoy writes "-" where it has none.
func told(s string) bool { return s != "" && s != "-" }

// decide joins what the families say whose line it may be.
func (u *Usage) decide(votes []vote) verdict {
	var from []*outlet
	var to netip.AddrPort
	var backends []int
	is := map[way]bool{}
	name := ""
	add := func(list []int) {
		for _, i := range list {
			if !slices.Contains(backends, i) {
				backends = append(backends, i)
			}
		}
	}
	for _, v := range votes {
		for _, o := range v.outlets {
			if !slices.Contains(from, o) {
				from = append(from, o)
			}
		}
		if v.to.IsValid() {
			to = v.to
		}
		if len(v.outlets) == 0 {
			name = v.name
		}
		if add(v.backends); len(v.backends) > 0 {
			is[toService] = true
		}
	}
	if len(from)+len(backends) == 0 {
		if strings.TrimSpace(name) == "" {
			return verdict{fate: foreign}
		}
		return verdict{fate: unknown, name: name}
	}
	for _, o := range from {
		is[o.way] = true
		add(o.backends)
	}
	slices.Sort(backends)
	switch {
	case len(is) > 1:
		return verdict{fate: ambiguous}
	case is[inbound]:
		return verdict{fate: arrived}
	case is[past]:
		return u.pastMesh(from, to)
	case !u.sameName(backends):
		return verdict{fate: ambiguous}
	}
	return verdict{fate: used, backends: backends}
}

// sameName reports whether services go by one name: a value of kuma.io/service and the MeshService
// that it is, or the ports of one resource. A line that may be about any of them counts for all.
func (u *Usage) sameName(backends []int) bool {
	return !slices.ContainsFunc(backends, func(i int) bool {
		return u.backends.Items[i].Name != u.backends.Items[backends[0]].Name
	})
}

// pastMesh looks whose address was dialled. A listener of its own has the address in it.
func (u *Usage) pastMesh(from []*outlet, to netip.AddrPort) verdict {
	if !to.IsValid() && len(from) == 1 && from[0].address.IsValid() &&
		!strings.HasPrefix(from[0].name, prefixPassthrough) {
		to = from[0].address
	}
	if list := u.lookup.virtual[to]; len(list) > 0 && u.sameName(list) {
		return verdict{fate: used, backends: list}
	}
	if len(u.lookup.instance[to]) > 0 {
		return verdict{fate: instance, to: to}
	}
	return verdict{fate: outside}
}
