package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// Intercept configures the redirections that the agent installs itself.
type Intercept struct {
	Pods  bool            `json:"pods" default:"false" doc:"Redirect the traffic of the pods whose Dataplanes have the label nearside.io/redirect: pod, when their Envoys connect, and serve these Envoys only after that. If it is false, they get no config. Needs the PID namespace of the node and the capabilities NET_ADMIN, SYS_ADMIN, and SYS_PTRACE."`
	Watch []InterceptRule `json:"watch" live:"" max:"32" example:"[{name: pods, netns: '/run/netns/cni-*'}]" doc:"Rules that select network namespaces in which the agent installs a redirection, soon after they exist, as nearside intercept install does. The first matching rule applies. Namespaces that no rule selects, those of the host and of the agent, and installations of the command remain unchanged."`
}

// InterceptRule selects network namespaces, and the traffic in them that is redirected.
type InterceptRule struct {
	Name                 string   `json:"name" check:"name" required:"" unique:"" max:"63" doc:"Name of the rule, for status and metrics."`
	Cgroup               string   `json:"cgroup" max:"1024" doc:"Pattern of cgroups (version 2) below their root, such as kubepods.slice/*: the network namespaces of processes in matching cgroups and below. * matches any characters of one level. Set either cgroup or netns."`
	Netns                string   `json:"netns" max:"1024" doc:"Pattern of files of network namespaces, such as /run/netns/cni-*."`
	DNSPort              int      `json:"dnsPort" default:"15053" max:"65535" doc:"Port of the resolver in the namespace. 0: DNS is not redirected."`
	Outbound             int      `json:"outbound" max:"65535" doc:"Port of Envoy for outbound TCP connections, such as 15001. 0: they are not redirected."`
	OutboundVirtual      int      `json:"outboundVirtual" max:"65535" doc:"Port of Envoy for outbound TCP connections to virtual addresses (vips), such as 15002. 0: they go to outbound."`
	Inbound              int      `json:"inbound" max:"65535" doc:"Port of Envoy for inbound TCP connections, such as 15006. 0: they are not redirected."`
	EnvoyUsers           []string `json:"envoyUsers" check:"uid" max:"256" doc:"UIDs of Envoy, whose connections are not redirected; required with outbound."`
	ExcludeUsers         []string `json:"excludeUsers" check:"uid" max:"256" doc:"UIDs whose traffic is not redirected."`
	ExcludeOutboundPorts []string `json:"excludeOutboundPorts" check:"port" max:"256" doc:"Ports of outbound connections that are not redirected."`
	ExcludeInboundPorts  []string `json:"excludeInboundPorts" check:"port" max:"256" doc:"Ports of inbound connections that are not redirected."`
	ExcludeOutboundCIDRs []string `json:"excludeOutboundCIDRs" check:"network" max:"256" doc:"Destination networks that are not redirected, such as 10.0.0.0/8."`
	ExcludeInboundCIDRs  []string `json:"excludeInboundCIDRs" check:"network" max:"256" doc:"Source networks that are not redirected."`
}

// InterceptRules returns the rules of intercept.watch.
func (c *Config) InterceptRules() []intercept.Rule {
	out := make([]intercept.Rule, 0, len(c.Intercept.Watch))
	for i := range c.Intercept.Watch {
		out = append(out, c.Intercept.Watch[i].rule(&c.VIPs))
	}
	return out
}

// rule returns the rule of valid keys.
func (r *InterceptRule) rule(vips *VIPs) intercept.Rule {
	out := intercept.Rule{Name: r.Name, Cgroup: r.Cgroup, Netns: r.Netns, Spec: intercept.Spec{
		// #nosec G115 -- at most 65535
		DNSPort: uint16(r.DNSPort), Outbound: uint16(r.Outbound), Virtual: uint16(r.OutboundVirtual),
		// #nosec G115
		Inbound: uint16(r.Inbound), EnvoyUsers: numbers[uint32](r.EnvoyUsers), ExcludeUsers: numbers[uint32](r.ExcludeUsers),
		ExcludeOutboundPorts: numbers[uint16](r.ExcludeOutboundPorts),
		ExcludeInboundPorts:  numbers[uint16](r.ExcludeInboundPorts),
		ExcludeOutboundCIDRs: networks(r.ExcludeOutboundCIDRs), ExcludeInboundCIDRs: networks(r.ExcludeInboundCIDRs)}}
	if r.OutboundVirtual != 0 {
		out.Spec.VirtualCIDRs = vips.Networks()
	}
	out.Spec.Normalize()
	return out
}

// Networks returns the ranges of virtual addresses.
func (v *VIPs) Networks() (out []netip.Prefix) {
	for _, texts := range [][]string{v.Tag, v.MeshService, v.MeshExternalService, v.MeshMultiZoneService} {
		out = append(out, networks(texts)...)
	}
	return out
}

// numbers parses checked numbers.
func numbers[T uint16 | uint32](texts []string) (out []T) {
	for _, s := range texts {
		n, _ := strconv.ParseUint(s, 10, 32)
		out = append(out, T(n)) // #nosec G115 -- checked
	}
	return out
}

// networks parses checked networks.
func networks(texts []string) (out []netip.Prefix) {
	for _, s := range texts {
		p, _ := parseNetwork(s)
		out = append(out, p)
	}
	return out
}

// parseNetwork parses a prefix or an address.
func parseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// checkNumber checks a UID or a port.
func checkNumber(check, s string) string {
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case check == "uid" && (err != nil || n == 1<<32-1):
		return fmt.Sprintf("%.64q is not a UID; use a number from 0 to 4294967294", s)
	case check == "port" && (err != nil || n == 0 || n > 65535):
		return fmt.Sprintf("%.64q is not a port; use a number from 1 to 65535", s)
	}
	return ""
}

// checkIntercept checks the rules of intercept.watch.
func (c *Config) checkIntercept(fault faultFunc) {
	// The messages of the package name the flags of the command.
	keys := strings.NewReplacer("--outbound-virtual", "outboundVirtual", "--outbound", "outbound", "--inbound", "inbound",
		"--envoy-user", "envoyUsers", "--exclude-user", "excludeUsers", "--dns-port", "dnsPort", "enable --dns",
		"set dnsPort",
		"--virtual-cidr", "vips", "--exclude-outbound-port", "excludeOutboundPorts",
		"--exclude-inbound-port", "excludeInboundPorts", "--exclude-outbound-cidr", "excludeOutboundCIDRs",
		"--exclude-inbound-cidr", "excludeInboundCIDRs")
	for i, r := range c.InterceptRules() {
		at := fmt.Sprintf("intercept.watch[%d]", i)
		if err := r.Validate(); err != nil {
			fault(at, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		if err := r.Spec.Validate(); err != nil {
			fault(at, "%s", strings.ReplaceAll(keys.Replace(err.Error()), "\n", "; "))
		}
	}
}
