package intercept

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

type flow = netlink.ConntrackFlow

// entries selects conntrack entries.
type entries func(*flow) bool

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (e entries) MatchConntrackFlow(f *flow) bool { return e(f) }

// established is the conntrack state of an established TCP connection.
const established = 3

// deleteEntries deletes conntrack entries in a namespace.
func deleteEntries(n *Namespace, which entries) (uint, error) {
	ns := n.handle
	if n.Path == "" {
		ns = netns.None()
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, n.explain(fmt.Errorf("connect to conntrack in %s: %w", n, err))
	}
	defer h.Close()
	var total uint
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		count, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, which)
		total += count
		// The entry may have expired in the meantime.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return total, n.explain(fmt.Errorf("delete conntrack entries in %s: %w", n, err))
		}
	}
	return total, nil
}

// openStreams selects this namespace's TCP connections to name servers that are not redirected.
// When the entry is deleted, the next segment takes the way of new connections and is answered
// with a reset. The client then reconnects and is redirected. UDP does not need this, because
// redirected queries have their own zone.
func openStreams(n *Namespace) (entries, error) {
	var own []net.IP
	err := n.Do(func() error {
		list, err := net.InterfaceAddrs()
		for _, a := range list {
			if p, ok := a.(*net.IPNet); ok {
				own = append(own, p.IP)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", n, err)
	}
	return func(f *flow) bool {
		tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP)
		return ok && tcp.State == established && f.Forward.DstPort == 53 && f.Reverse.SrcPort == 53 &&
			slices.ContainsFunc(own, f.Forward.SrcIP.Equal)
	}, nil
}

// redirected selects the connections and queries that a spec redirects. Without the table they
// are no longer translated, and would hang.
func redirected(s *Spec) entries {
	return func(f *flow) bool {
		to := f.Reverse.SrcPort
		switch {
		case to == 0 || f.Forward.DstPort == to:
			return false
		case to == s.DNSPort:
			return f.Forward.DstPort == 53
		}
		return f.Forward.Protocol == unix.IPPROTO_TCP && (to == s.Outbound || to == s.Virtual || to == s.Inbound)
	}
}
