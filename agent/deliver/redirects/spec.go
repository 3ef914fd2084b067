package redirects

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

func compareKeys(a, b node.Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Flavor, b.Flavor))
}

// keys replaces the names of flags in the messages of [intercept.Spec.Validate].
var keys = strings.NewReplacer("--outbound-virtual", "the label "+mesh.LabelVirtualPort, "--outbound",
	"redirectPortOutbound", "--inbound", "redirectPortInbound", "--dns-port", "redirect.dnsPort",
	"--virtual-cidr", "vips", "--envoy-user", "the user of the Envoy", "--exclude-outbound-port",
	"redirect.excludeOutboundPorts", "--exclude-inbound-port", "redirect.excludeInboundPorts",
	"--exclude-outbound-cidr", "redirect.excludeOutboundIPs", "--exclude-inbound-cidr", "redirect.excludeInboundIPs")

// specOf returns the redirection of a client for which its Dataplane asks, or why there is none.
func (r *Redirects) specOf(key node.Key, peer *access.Peer, rec store.Record) (*intercept.Spec, error) {
	dp, ok := rec.Spec.(*resource.Dataplane)
	switch value := rec.Resource.Labels[redirect.Label]; {
	case !ok:
		return nil, errors.New("it is not a Dataplane")
	case value != redirect.ValuePod:
		return nil, fmt.Errorf("labels[%q]: %q is not supported; use %s", redirect.Label, clip.Value(value),
			redirect.ValuePod)
	case !r.o.Enabled:
		return nil, fmt.Errorf("it has the label %s: %s, but intercept.pods is false; set intercept.pods: true and restart "+
			"the agent", redirect.Label, redirect.ValuePod)
	case rec.Source.Kind != store.SourceFile && rec.Source.Kind != store.SourceAPI:
		return nil, fmt.Errorf("only a Dataplane of a file or of the API of this node may have the label %s; store it there",
			redirect.Label)
	case key.Flavor != node.FlavorEnvoy:
		return nil, errors.New("only an Envoy can receive redirected traffic, and the client is none; " +
			"run an Envoy in the pod")
	}
	if err := belongs(peer, access.PinsOf(rec.Resource.Labels).Pod); err != nil {
		return nil, err
	}
	tp := dp.Networking.TransparentProxying
	if tp == nil {
		return nil, errors.New("networking.transparentProxying is missing; set the ports to which traffic is redirected, " +
			"such as redirectPortOutbound: 15001 and redirectPortInbound: 15006")
	}
	o := tp.Redirect
	if o == nil {
		o = &redirect.Options{}
	}
	s := &intercept.Spec{
		Outbound: uint16(tp.RedirectPortOutbound), Inbound: uint16(tp.RedirectPortInbound), // #nosec G115 -- checked
		ExcludeInboundPorts:  append(ports(o.ExcludeInboundPorts), redirect.ReadinessPort),
		ExcludeOutboundPorts: ports(o.ExcludeOutboundPorts),
		ExcludeInboundCIDRs:  networks(o.ExcludeInboundIPs),
		ExcludeOutboundCIDRs: networks(o.ExcludeOutboundIPs),
		ProbePorts:           ports(o.ProbePorts),
	}
	if dp.Networking.Gateway != nil { // clients outside of the mesh reach a gateway directly
		s.Inbound, s.ExcludeInboundPorts, s.ExcludeInboundCIDRs, s.ProbePorts = 0, nil, nil, nil
	}
	if r.o.DNSPort != 0 && !o.WithoutDNS {
		s.DNSPort = cmp.Or(uint16(o.DNSPort), r.o.DNSPort) // #nosec G115 -- checked
	}
	virtual, err := mesh.VirtualPort(rec.Resource, dp)
	if err != nil {
		return nil, err
	}
	if virtual != 0 {
		s.Virtual, s.VirtualCIDRs = uint16(virtual), slices.Clone(r.o.Virtual) // #nosec G115 -- checked
	}
	s.EnvoyUsers = []uint32{0} // only for the check; the installer adds the user of the Envoy
	s.Normalize()
	err = s.Validate()
	if s.EnvoyUsers = nil; err != nil {
		return nil, errors.New(strings.ReplaceAll(keys.Replace(err.Error()), "\n", "; "))
	}
	return s, nil
}

// belongs returns an error unless a client is in the pod with a uid. Root is no exception, because
// the namespace of its process is changed.
func belongs(peer *access.Peer, want string) error {
	switch have := peer.PodUID(); {
	case want == "":
		return fmt.Errorf("the label %s is missing; set it to the uid of the pod, so that only the network namespace "+
			"of this pod is changed", access.LabelPod)
	case !peer.Local:
		return errors.New("its Envoy is not connected over a unix socket, so its process is unknown; connect it to xds.sock")
	case have == "":
		return fmt.Errorf("its Envoy is not in a pod (its cgroup is %q); run it in a pod of this node",
			clip.Value(peer.Cgroup))
	case have != want:
		return fmt.Errorf("its Envoy is in the pod %s, but its Dataplane has the label %s: %s; correct the label",
			clip.Value(have), access.LabelPod, clip.Value(want))
	}
	return nil
}

func ports(list []uint32) []uint16 {
	out := make([]uint16, 0, len(list)+1)
	for _, p := range list {
		out = append(out, uint16(p)) // #nosec G115 -- checked
	}
	return out
}

// networks parses checked networks.
func networks(list []string) (out []netip.Prefix) {
	for _, s := range list {
		if p, err := redirect.Network(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}
