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

// entries chooses entries of conntrack.
type entries func(*flow) bool

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (e entries) MatchConntrackFlow(f *flow) bool { return e(f) }

// established is the state of a connection over TCP in conntrack that both sides have agreed to.
const established = 3

// forget deletes entries of conntrack in a namespace.
func forget(n *Namespace, which entries) (uint, error) {
	ns := n.handle
	if n.Path == "" {
		ns = netns.None()
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, explain(fmt.Errorf("talk to conntrack in %s: %w", n, err), unix.CAP_SYS_ADMIN)
	}
	defer h.Close()
	var total uint
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		count, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, which)
		total += count
		// an entry that has just ended
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return total, explain(fmt.Errorf("delete entries of conntrack in %s: %w", n, err), unix.CAP_NET_ADMIN)
		}
	}
	return total, nil
}

// openStreams are connections over TCP of this namespace to name servers that are not redirected.
// Without its entry, the next segment of one goes where new ones go, and is answered with a reset:
// the client connects again, and is redirected. UDP needs no such thing, since redirected queries
// are in a zone of their own.
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

// redirected are connections and queries that a spec has redirected: without the table nobody would
// translate them any more, and they would hang.
func redirected(s *Spec) entries {
	return func(f *flow) bool {
		to := f.Reverse.SrcPort
		switch {
		case to == 0 || f.Forward.DstPort == to:
			return false
		case to == s.DNSPort:
			return f.Forward.DstPort == 53
		}
		return f.Forward.Protocol == unix.IPPROTO_TCP && (to == s.Outbound || to == s.Inbound)
	}
}
