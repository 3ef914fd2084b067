package intercept

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	// Table is the name of the table, of the family inet.
	Table = "nearside"
	// Mark is on the agent's own queries (SO_MARK). It has no bit that kube-proxy, Cilium,
	// Calico, or Tailscale use.
	Mark = 0x3073
	// Zone is the conntrack zone of redirected UDP. Because of it, the redirection of an open
	// socket starts and ends with its next query, regardless of conntrack entries of earlier
	// queries.
	Zone = 0x6e73
	// LiveTime is how long the redirection of DNS outlives the agent. RefreshTime is how often
	// the agent renews it.
	LiveTime    = 2500 * time.Millisecond
	RefreshTime = time.Second

	// DefaultDNSPort is the port of the resolver on 127.0.0.1 and ::1.
	DefaultDNSPort = 15053
	// DefaultOutboundPort and DefaultInboundPort are the ports of Envoy for redirected
	// connections.
	DefaultOutboundPort, DefaultInboundPort = 15001, 15006
	// DefaultVirtualPort is the port of Envoy for redirected connections to virtual addresses.
	DefaultVirtualPort = 15002

	udpEntryTime = 5 // seconds that conntrack retains a redirected query
	priority     = -110
	zonePriority = -310 // before other programs' rules at priority raw (-300)
	maxItems     = 256  // per list
)

// Spec describes a redirection. [Spec.Normalize] sorts the lists.
type Spec struct {
	// DNSPort is the port of the resolver on the loopback addresses; 0 means that DNS is not
	// redirected.
	DNSPort uint16 `json:"dnsPort,omitempty"`
	// Users and Cgroups select the processes whose DNS and outbound TCP is redirected. If both
	// are empty, the whole namespace is redirected. Cgroups are paths below the root of the
	// cgroup2 file system, without a leading slash.
	Users   []uint32 `json:"users,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	// ExcludeUsers are never redirected.
	ExcludeUsers []uint32 `json:"excludeUsers,omitempty"`
	// Outbound and Inbound are the ports of Envoy for outgoing and incoming connections; 0 means
	// that they are not redirected.
	Outbound uint16 `json:"outbound,omitempty"`
	Inbound  uint16 `json:"inbound,omitempty"`
	// Virtual is the port of Envoy for outgoing connections to VirtualCIDRs; 0 means that they go to
	// Outbound.
	Virtual      uint16         `json:"virtual,omitempty"`
	VirtualCIDRs []netip.Prefix `json:"virtualCIDRs,omitempty"`
	// EnvoyUsers are the users that run Envoy. Their connections are not redirected to Envoy, but
	// their DNS is redirected.
	EnvoyUsers           []uint32       `json:"envoyUsers,omitempty"`
	ExcludeOutboundPorts []uint16       `json:"excludeOutboundPorts,omitempty"`
	ExcludeInboundPorts  []uint16       `json:"excludeInboundPorts,omitempty"`
	ExcludeOutboundCIDRs []netip.Prefix `json:"excludeOutboundCIDRs,omitempty"` // by destination
	ExcludeInboundCIDRs  []netip.Prefix `json:"excludeInboundCIDRs,omitempty"`  // by source
	// ProbePorts and ProbeSources exempt incoming connections from one of the sources to one of the
	// ports, for probes by the node of a pod.
	ProbePorts   []uint16       `json:"probePorts,omitempty"`
	ProbeSources []netip.Prefix `json:"probeSources,omitempty"`
}

// Normalize sorts the lists and removes duplicates, so that equal choices have equal rulesets.
func (s *Spec) Normalize() {
	for _, l := range []*[]uint32{&s.Users, &s.ExcludeUsers, &s.EnvoyUsers} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	for _, l := range []*[]uint16{&s.ExcludeOutboundPorts, &s.ExcludeInboundPorts, &s.ProbePorts} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	slices.Sort(s.Cgroups)
	s.Cgroups = slices.Compact(s.Cgroups)
	s.ExcludeOutboundCIDRs, s.ExcludeInboundCIDRs = outermost(s.ExcludeOutboundCIDRs), outermost(s.ExcludeInboundCIDRs)
	s.VirtualCIDRs, s.ProbeSources = outermost(s.VirtualCIDRs), outermost(s.ProbeSources)
}

// outermost sorts prefixes and removes those inside another one, because intervals of a set must
// not overlap.
func outermost(list []netip.Prefix) (out []netip.Prefix) {
	for i := range list {
		list[i] = list[i].Masked()
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, p := range list {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// Validate returns all errors, each with the name of its flag.
func (s *Spec) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.DNSPort == 0 && s.Outbound == 0 && s.Inbound == 0 {
		fault("nothing is redirected: enable --dns, or add --outbound or --inbound")
	}
	if s.DNSPort == 53 {
		fault("--dns-port: 53 is the redirected port; use the port that the agent listens on (dns.listen), "+
			"such as %d", DefaultDNSPort)
	}
	if s.Outbound != 0 && s.Outbound == s.Inbound {
		fault("--outbound and --inbound are both %d; Envoy distinguishes them by port", s.Outbound)
	}
	if s.DNSPort != 0 && (s.DNSPort == s.Outbound || s.DNSPort == s.Inbound) {
		fault("--dns-port is %d, a port of Envoy; they must differ", s.DNSPort)
	}
	switch {
	case s.Virtual == 0 && len(s.VirtualCIDRs) > 0:
		fault("--virtual-cidr has an effect only with --outbound-virtual; add it")
	case s.Virtual != 0 && s.Outbound == 0:
		fault("--outbound is required with --outbound-virtual, because other connections need a port too")
	case s.Virtual != 0 && len(s.VirtualCIDRs) == 0:
		fault("--virtual-cidr is required with --outbound-virtual: give the ranges of virtual addresses")
	case s.Virtual != 0 && (s.Virtual == s.Outbound || s.Virtual == s.Inbound || s.Virtual == s.DNSPort):
		fault("--outbound-virtual is %d, which another flag also names; Envoy distinguishes connections by port", s.Virtual)
	}
	if s.Outbound != 0 && len(s.EnvoyUsers) == 0 {
		fault("--envoy-user is required with --outbound: without it, Envoy's own connections would be redirected back to it")
	}
	if s.Inbound != 0 && len(s.Users)+len(s.Cgroups) > 0 {
		fault("--inbound applies to a whole network namespace, because the receiver of an incoming connection is not " +
			"yet known; remove --user and --cgroup")
	}
	for _, u := range s.Users {
		if slices.Contains(s.ExcludeUsers, u) {
			fault("--user and --exclude-user both have uid %d; remove one", u)
		}
	}
	for _, c := range s.Cgroups {
		switch depth := len(strings.Split(c, "/")); {
		case c == "" || c == ".":
			fault("--cgroup is the root cgroup, which contains all processes; give a cgroup below it")
		case c != path.Clean(c) || strings.HasPrefix(c, "/") || strings.HasPrefix(c, "..") ||
			strings.ContainsAny(c, "\"\n\\"):
			fault("--cgroup: %q is not the path of a cgroup, such as system.slice/app.service", c)
		case depth > maxDepth:
			fault("--cgroup: %q is %d levels deep, at most %d are allowed", c, depth, maxDepth)
		}
	}
	for _, l := range []struct {
		flag string
		n    int
	}{{"--user", len(s.Users)}, {"--cgroup", len(s.Cgroups)}, {"--exclude-user", len(s.ExcludeUsers)},
		{"--envoy-user", len(s.EnvoyUsers)},
		{"--exclude-outbound-port", len(s.ExcludeOutboundPorts)}, {"--exclude-inbound-port", len(s.ExcludeInboundPorts)},
		{"--exclude-outbound-cidr", len(s.ExcludeOutboundCIDRs)}, {"--exclude-inbound-cidr", len(s.ExcludeInboundCIDRs)},
		{"--virtual-cidr", len(s.VirtualCIDRs)}, {"probePorts", len(s.ProbePorts)},
		{"probeSources", len(s.ProbeSources)}} {
		if l.n > maxItems {
			fault("%s has %d values, at most %d are allowed", l.flag, l.n, maxItems)
		}
	}
	for _, l := range []struct {
		flag string
		list []netip.Prefix
	}{{"--exclude-outbound-cidr", s.ExcludeOutboundCIDRs}, {"--exclude-inbound-cidr", s.ExcludeInboundCIDRs},
		{"--virtual-cidr", s.VirtualCIDRs}, {"probeSources", s.ProbeSources}} {
		for _, p := range l.list {
			if !p.IsValid() || p.Bits() == 0 || p.Addr().Is4In6() {
				fault("%s: %s is not a valid network; use one such as 10.0.0.0/8", l.flag, p)
			}
		}
	}
	for _, l := range []struct {
		flag string
		list []uint16
	}{{"--exclude-outbound-port", s.ExcludeOutboundPorts}, {"--exclude-inbound-port", s.ExcludeInboundPorts},
		{"probePorts", s.ProbePorts}} {
		if slices.Contains(l.list, 0) {
			fault("%s: 0 is not a valid port; 1 to 65535 are allowed", l.flag)
		}
	}
	return errors.Join(errs...)
}

// String describes the redirected traffic and the selected processes.
func (s *Spec) String() string {
	var what, who []string
	if s.DNSPort != 0 {
		what = append(what, fmt.Sprintf("DNS to port %d", s.DNSPort))
	}
	if s.Outbound != 0 {
		what = append(what, fmt.Sprintf("outbound TCP to port %d", s.Outbound))
	}
	if s.Virtual != 0 {
		what = append(what, fmt.Sprintf("TCP to virtual addresses to port %d", s.Virtual))
	}
	if s.Inbound != 0 {
		what = append(what, fmt.Sprintf("inbound TCP to port %d", s.Inbound))
	}
	for _, u := range s.Users {
		who = append(who, fmt.Sprintf("uid %d", u))
	}
	for _, c := range s.Cgroups {
		who = append(who, "cgroup "+c)
	}
	if len(who) == 0 {
		who = []string{"the whole network namespace"}
	}
	return strings.Join(what, ", ") + " of " + strings.Join(who, ", ")
}

// canaryName can only be resolved by the agent: "invalid" never exists in DNS (RFC 6761), and the
// canary's address is for documentation (RFC 5737).
const canaryName = "canary.nearside.invalid"

func canaryAddr() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 53}) }

// CanaryHost returns the canary, which must be in the table of the agent's resolver for all
// clients. A client that gets its address has queried the agent.
func CanaryHost() table.Host { return table.Host{Name: canaryName, Addrs: []netip.Addr{canaryAddr()}} }
