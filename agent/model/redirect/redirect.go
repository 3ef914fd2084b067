// Package redirect defines how a Dataplane asks for the redirection of its pod's traffic: a label,
// and annotations in the form of a field. It is pure.
package redirect

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

const (
	// Label asks the agent to redirect the traffic of a pod to its proxy.
	Label = "nearside.io/redirect"
	// ValuePod is the only value of [Label].
	ValuePod = "pod"
	// AnnotationProbePorts lists the ports that the node probes around the proxy, such as "8080,9090".
	AnnotationProbePorts = "nearside.io/probe-ports"
	// ReadinessPort is the port on which the injected sidecar reports its readiness. It is never
	// redirected.
	ReadinessPort = 9902
)

// MaxItems limits each list.
const MaxItems = 128

// Options are the exceptions from the redirection of a pod.
type Options struct {
	ExcludeInboundPorts  []uint32 `json:"excludeInboundPorts,omitempty"`
	ExcludeOutboundPorts []uint32 `json:"excludeOutboundPorts,omitempty"`
	ExcludeInboundIPs    []string `json:"excludeInboundIPs,omitempty"`  // addresses or networks of clients
	ExcludeOutboundIPs   []string `json:"excludeOutboundIPs,omitempty"` // addresses or networks of servers
	ProbePorts           []uint32 `json:"probePorts,omitempty"`         // that the node reaches around the proxy
	DNSPort              uint32   `json:"dnsPort,omitempty"`            // of the resolver in the pod; 0: the default
	WithoutDNS           bool     `json:"withoutDNS,omitempty"`         // the DNS of the pod is not redirected
}

// Fault is an invalid field or annotation.
type Fault struct{ Name, Reason string }

// Faults returns the faults of the fields, by their names.
func (o *Options) Faults() (out []Fault) {
	for _, l := range []struct {
		name  string
		ports []uint32
	}{{"excludeInboundPorts", o.ExcludeInboundPorts}, {"excludeOutboundPorts", o.ExcludeOutboundPorts},
		{"probePorts", o.ProbePorts}} {
		if n := len(l.ports); n > MaxItems {
			out = append(out, Fault{l.name, tooMany(n)})
		}
		for i, p := range l.ports {
			if p == 0 || p > 65535 {
				out = append(out, Fault{fmt.Sprintf("%s[%d]", l.name, i), notPort(strconv.Itoa(int(p)))})
			}
		}
	}
	for _, l := range []struct {
		name string
		ips  []string
	}{{"excludeInboundIPs", o.ExcludeInboundIPs}, {"excludeOutboundIPs", o.ExcludeOutboundIPs}} {
		if n := len(l.ips); n > MaxItems {
			out = append(out, Fault{l.name, tooMany(n)})
		}
		for i, s := range l.ips {
			if reason := networkFault(s); reason != "" {
				out = append(out, Fault{fmt.Sprintf("%s[%d]", l.name, i), reason})
			}
		}
	}
	if o.DNSPort > 65535 || o.DNSPort == 53 {
		out = append(out, Fault{"dnsPort", fmt.Sprintf("%d is not a port of the resolver; use another port from 1 to 65535 "+
			"than 53, which is the redirected one", o.DNSPort)})
	}
	if o.WithoutDNS && o.DNSPort != 0 {
		out = append(out, Fault{"dnsPort", "it has no effect with withoutDNS; remove dnsPort"})
	}
	return out
}

func tooMany(n int) string { return fmt.Sprintf("%d values, at most %d are allowed", n, MaxItems) }

func notPort(s string) string {
	return fmt.Sprintf("%s is not a port; use a number from 1 to 65535", strict.Quote(s))
}

func networkFault(s string) string {
	if p, err := Network(s); err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
		return fmt.Sprintf("%s is not an address or a network; use one such as 10.1.2.3 or 10.0.0.0/8", strict.Quote(s))
	}
	return ""
}

// Network parses an address or a network.
func Network(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// Kuma's annotations of pods.
const (
	excludeInboundPorts  = "traffic.kuma.io/exclude-inbound-ports"
	excludeOutboundPorts = "traffic.kuma.io/exclude-outbound-ports"
	excludeInboundIPs    = "traffic.kuma.io/exclude-inbound-ips"
	excludeOutboundIPs   = "traffic.kuma.io/exclude-outbound-ips"
	builtinDNS           = "kuma.io/builtindns"
	builtinDNSPort       = "kuma.io/builtindnsport"
	familyMode           = "kuma.io/transparent-proxying-ip-family-mode"
)

// Families returns the ipFamilyMode for which Kuma's annotation of a pod asks, or "" for both
// address families.
func Families(annotations map[string]string) string {
	switch strings.ToLower(annotations[familyMode]) {
	case "ipv4":
		return "IPv4"
	case "ipv6":
		return "IPv6"
	}
	return ""
}

// familyNote says what the annotation of [Families] does, or returns "".
func familyNote(annotations map[string]string) string {
	text := annotations[familyMode]
	switch mode := Families(annotations); {
	case mode != "":
		return fmt.Sprintf("[%q]: the proxy listens only for %s. Connections of the other address family fail, because both "+
			"are redirected, so that none bypasses the proxy", familyMode, mode)
	case text != "" && !strings.EqualFold(text, "dualstack"):
		return fmt.Sprintf("[%q]: without effect: %s is none of dualstack, ipv4, ipv6", familyMode, strict.Quote(text))
	}
	return ""
}

// without lists annotations of Kuma that have no effect, with the values that ask for what happens
// anyway, and the reason.
var without = []struct{ key, anyway, reason string }{
	{"kuma.io/transparent-proxying", "enabled,true", "the traffic of an injected pod is always redirected; " +
		"set kuma.io/sidecar-injection: disabled to run it outside of the mesh"},
	{"kuma.io/transparent-proxying-inbound-port", "15006", "networking.transparentProxying.redirectPortInbound applies"},
	{"kuma.io/transparent-proxying-outbound-port", "15001", "networking.transparentProxying.redirectPortOutbound applies"},
	{"kuma.io/transparent-proxying-ebpf", "disabled,false", "connections are redirected with nftables"},
	{"traffic.kuma.io/exclude-outbound-ports-for-uids", "", "exceptions for single users are not supported; use " +
		excludeOutboundPorts},
	{"traffic.kuma.io/exclude-outbound-tcp-ports-for-uids", "", "exceptions for single users are not supported; use " +
		excludeOutboundPorts},
	{"traffic.kuma.io/exclude-outbound-udp-ports-for-uids", "", "only the DNS of a pod is redirected over UDP"},
	{"traffic.kuma.io/drop-invalid-packets", "false,disabled", "packets are not dropped"},
	{"traffic.kuma.io/iptables-logs", "false,disabled", "nothing is logged; see nearside intercept status"},
	{"traffic.kuma.io/transparent-proxy-config", "", "use the annotations for single settings"},
	{"traffic.kuma.io/transparent-proxy-configmap-name", "", "use the annotations for single settings"},
}

// Annotations returns the annotations that [Parse] reads.
func Annotations() []string {
	out := []string{AnnotationProbePorts, excludeInboundPorts, excludeOutboundPorts, excludeInboundIPs, excludeOutboundIPs,
		builtinDNS, builtinDNSPort, familyMode}
	for _, w := range without {
		out = append(out, w.key)
	}
	return out
}

// Parse returns the options that the annotations of a pod set, notes about annotations without
// effect, and faults by annotation. All other annotations are ignored. It returns nil if no
// annotation sets an option.
func Parse(annotations map[string]string) (o *Options, notes []string, faults []Fault) {
	o = &Options{}
	for _, l := range []struct {
		key string
		to  *[]uint32
	}{{excludeInboundPorts, &o.ExcludeInboundPorts}, {excludeOutboundPorts, &o.ExcludeOutboundPorts},
		{AnnotationProbePorts, &o.ProbePorts}} {
		for _, s := range items(annotations[l.key]) {
			n, err := strconv.ParseUint(s, 10, 16)
			if err != nil || n == 0 {
				faults = append(faults, Fault{l.key, notPort(s)})
				break
			}
			*l.to = append(*l.to, uint32(n))
		}
	}
	for _, l := range []struct {
		key string
		to  *[]string
	}{{excludeInboundIPs, &o.ExcludeInboundIPs}, {excludeOutboundIPs, &o.ExcludeOutboundIPs}} {
		for _, s := range items(annotations[l.key]) {
			if reason := networkFault(s); reason != "" {
				faults = append(faults, Fault{l.key, reason})
				break
			}
			*l.to = append(*l.to, s)
		}
	}
	switch text := annotations[builtinDNS]; text {
	case "", "enabled", "true":
		if port, given := annotations[builtinDNSPort]; given {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 || n == 53 {
				faults = append(faults, Fault{builtinDNSPort, notPort(port) + ", except 53"})
			} else if n != 15053 {
				o.DNSPort = uint32(n)
			}
		}
	case "disabled", "false":
		o.WithoutDNS = true
	default:
		faults = append(faults, Fault{builtinDNS, strict.Quote(text) + " is neither enabled nor disabled"})
	}
	for _, l := range []struct {
		key string
		n   int
	}{{excludeInboundPorts, len(o.ExcludeInboundPorts)}, {excludeOutboundPorts, len(o.ExcludeOutboundPorts)},
		{AnnotationProbePorts, len(o.ProbePorts)}, {excludeInboundIPs, len(o.ExcludeInboundIPs)},
		{excludeOutboundIPs, len(o.ExcludeOutboundIPs)}} {
		if l.n > MaxItems {
			faults = append(faults, Fault{l.key, tooMany(l.n)})
		}
	}
	if note := familyNote(annotations); note != "" {
		notes = append(notes, note)
	}
	for _, w := range without {
		if text, given := annotations[w.key]; given && !slices.Contains(strings.Split(w.anyway, ","), text) {
			notes = append(notes, fmt.Sprintf("[%q]: without effect: %s", w.key, w.reason))
		}
	}
	if o.isZero() {
		o = nil
	}
	return o, notes, faults
}

// Annotate returns the options of a Dataplane with those of its annotations. Existing options take
// precedence. path is the field path of the annotations, with which the notes and the names of the
// faults begin.
func Annotate(path string, have *Options, annotations map[string]string) (*Options, []string, []Fault) {
	o, notes, faults := Parse(annotations)
	for i := range notes {
		notes[i] = path + notes[i]
	}
	for i := range faults {
		faults[i].Name = fmt.Sprintf("%s[%q]", path, faults[i].Name)
	}
	switch {
	case have == nil:
		return o, notes, faults
	case o != nil && !o.equal(have):
		notes = append(notes, path+": networking.transparentProxying.redirect takes precedence over the annotations of the "+
			"redirection; remove these annotations")
	}
	return have, notes, faults
}

func (o *Options) equal(b *Options) bool {
	return slices.Equal(o.ExcludeInboundPorts, b.ExcludeInboundPorts) && slices.Equal(o.ProbePorts, b.ProbePorts) &&
		slices.Equal(o.ExcludeOutboundPorts, b.ExcludeOutboundPorts) && slices.Equal(o.ExcludeInboundIPs,
		b.ExcludeInboundIPs) && slices.Equal(o.ExcludeOutboundIPs, b.ExcludeOutboundIPs) && o.DNSPort == b.DNSPort &&
		o.WithoutDNS == b.WithoutDNS
}

func (o *Options) isZero() bool {
	return len(o.ExcludeInboundPorts)+len(o.ExcludeOutboundPorts)+len(o.ExcludeInboundIPs)+len(o.ExcludeOutboundIPs)+
		len(o.ProbePorts) == 0 && o.DNSPort == 0 && !o.WithoutDNS
}

// items returns the items of a list that is separated by commas.
func items(text string) (out []string) {
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
