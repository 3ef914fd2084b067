package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Labels of a Dataplane that control how its proxy accepts connections.
const (
	// LabelVirtualPort is the port of the proxy to which outgoing connections to virtual addresses
	// are redirected. Without it they are redirected like all others.
	LabelVirtualPort = "nearside.io/redirect-port-virtual"
	// LabelServerFirst lists ports of inbounds whose servers send the first bytes, separated by
	// underscores, because a label value cannot contain a comma.
	LabelServerFirst = "nearside.io/server-first"
)

// VirtualPort returns the port of [LabelVirtualPort], or 0. It fails if the value is not a port, or
// a port that the dataplane uses otherwise.
func VirtualPort(r *resource.Resource, dp *resource.Dataplane) (uint32, error) {
	value, given := r.Labels[LabelVirtualPort]
	tp := dp.Networking.TransparentProxying
	if !given || tp == nil || tp.RedirectPortOutbound == 0 {
		return 0, nil
	}
	port, err := parsePort(value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("labels[%q]: %w; connections to virtual addresses use redirectPortOutbound",
			LabelVirtualPort, err)
	case port == tp.RedirectPortOutbound || port == tp.RedirectPortInbound || port == tp.RedirectPortInboundV6:
		return 0, fmt.Errorf("labels[%q]: port %d is another redirection port of networking.transparentProxying; "+
			"use a different port", LabelVirtualPort, port)
	}
	return port, nil
}

// ServerFirst returns the ports of [LabelServerFirst], sorted. It fails if the value has another
// form. r may be nil.
func ServerFirst(r *resource.Resource) ([]uint32, error) {
	if r == nil {
		return nil, nil
	}
	value, given := r.Labels[LabelServerFirst]
	if !given {
		return nil, nil
	}
	var out []uint32
	for text := range strings.SplitSeq(value, "_") {
		port, err := parsePort(text)
		if err != nil {
			return nil, fmt.Errorf("labels[%q]: %w; use the form 3306_5432", LabelServerFirst, err)
		}
		out = append(out, port)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parsePort(s string) (uint32, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%.64q is not a port from 1 to 65535", s)
	}
	return uint32(port), nil
}

// VirtualRanges returns the ranges of virtual addresses of one family, sorted, without overlaps and
// with adjacent ones merged. Callers must not modify the slice.
func (v *View) VirtualRanges(v6 bool) []netip.Prefix {
	if v6 {
		return v.virtual[1]
	}
	return v.virtual[0]
}

// IsVirtual reports whether an address belongs to the ranges of virtual addresses.
func (v *View) IsVirtual(a netip.Addr) bool {
	return slices.ContainsFunc(v.VirtualRanges(a.Is6()), func(p netip.Prefix) bool { return p.Contains(a) })
}

// virtualRanges splits ranges by family and merges them.
func virtualRanges(list []netip.Prefix) (out [2][]netip.Prefix) {
	for _, p := range list {
		i := 0
		if p.Addr().Is6() {
			i = 1
		}
		out[i] = append(out[i], p.Masked())
	}
	for i := range out {
		out[i] = mergePrefixes(out[i])
	}
	return out
}

// mergePrefixes returns the smallest sorted list of prefixes with the same addresses.
func mergePrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1; n-- {
			a, b := out[n-2], out[n-1]
			if a.Bits() != b.Bits() || a.Bits() == 0 {
				break
			}
			whole := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
			if whole.Addr() != a.Addr() || !whole.Contains(b.Addr()) {
				break
			}
			out = append(out[:n-2], whole)
		}
	}
	return out
}
