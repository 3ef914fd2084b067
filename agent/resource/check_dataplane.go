package resource

import (
	"net/netip"
	"strconv"
	"strings"
)

// Kinds of service that a dataplane refers to.
var backendKinds = [...]string{"MeshService", "MeshExternalService", "MeshMultiZoneService"}

// Validate checks the dataplane. A part of it that speaks of other resources is checked where these are known.
func (d *Dataplane) Validate(v *Validator) {
	n := &d.Networking
	v = v.Field("networking")
	v.Field("address").Host(n.Address)
	if n.AdvertisedAddress != "" {
		v.Field("advertisedAddress").Host(n.AdvertisedAddress)
	}
	n.Admin.validate(v.Field("admin"))
	switch {
	case n.Gateway == nil && len(n.Inbound) == 0:
		v.Faultf("a dataplane has at least one inbound, or a gateway section")
	case n.Gateway != nil && len(n.Inbound) > 0:
		v.Field("inbound").Faultf("a gateway has no inbounds: remove them or the gateway section")
	}
	if n.Gateway != nil {
		v := v.Field("gateway")
		v.Field("tags").serviceTags(n.Gateway.Tags)
		v.Field("type").optional(n.Gateway.Type, "DELEGATED", "BUILTIN")
	}
	n.validateInbounds(v.Field("inbound"))
	n.validateOutbounds(v.Field("outbound"))
	if n.TransparentProxying != nil {
		n.TransparentProxying.validate(v.Field("transparentProxying"))
	}
}

// ownPort checks the port of item i of a list, whose items differ in address or port. seen has the items before it.
func (v *Validator) ownPort(address string, port uint32, list string, i int, seen map[string]int) {
	if !v.Port(port) {
		return
	}
	canonical := strings.ToLower(address)
	if a, err := netip.ParseAddr(address); err == nil {
		canonical = a.Unmap().String()
	}
	key := canonical + " " + strconv.FormatUint(uint64(port), 10)
	if first, ok := seen[key]; ok {
		v.Faultf("%d is already the port of %s[%d] on %s: each %s has its own", port, list, first, address, list)
	} else {
		seen[key] = i
	}
}

func (n *Networking) validateInbounds(list *Validator) {
	seen := make(map[string]int, len(n.Inbound))
	for i := range n.Inbound {
		in, v := &n.Inbound[i], list.Index(i)
		address := n.Address
		if in.Address != "" {
			address = in.Address
			v.Field("address").bindIP(in.Address)
		}
		v.Field("port").ownPort(address, in.Port, "inbound", i, seen)
		v.Field("servicePort").portOrZero(in.ServicePort)
		if in.ServiceAddress != "" {
			v.Field("serviceAddress").ip(in.ServiceAddress)
		}
		v.Field("tags").serviceTags(in.Tags)
		v.Field("state").optional(in.State, InboundReady, InboundNotReady, InboundIgnored)
		if in.ServiceProbe != nil {
			in.ServiceProbe.validate(v.Field("serviceProbe"))
		}
	}
}

func (p *ServiceProbe) validate(v *Validator) {
	never := func(d *Duration) bool { return d != nil && d.Duration == 0 }
	v.unset(never(p.Interval), "interval", "0s is not an interval: give more")
	v.unset(never(p.Timeout), "timeout", "0s is not a timeout: give more")
	v.Field("unhealthyThreshold").AtLeastOne(p.UnhealthyThreshold)
	v.Field("healthyThreshold").AtLeastOne(p.HealthyThreshold)
}

// defaultOutboundAddress is where an outbound without an address listens.
const defaultOutboundAddress = "127.0.0.1"

func (n *Networking) validateOutbounds(list *Validator) {
	seen := make(map[string]int, len(n.Outbound))
	for i := range n.Outbound {
		out, v := &n.Outbound[i], list.Index(i)
		address := out.Address
		if address == "" {
			address = defaultOutboundAddress
		} else {
			v.Field("address").bindIP(address)
		}
		v.Field("port").ownPort(address, out.Port, "outbound", i, seen)
		switch {
		case out.BackendRef != nil && len(out.Tags) > 0:
			v.Field("tags").Faultf("tags and backendRef both name the destination: keep one")
		case out.BackendRef != nil:
			out.BackendRef.validate(v.Field("backendRef"))
		default:
			v := v.Field("tags")
			v.Tags(out.Tags, false)
			if _, ok := out.Tags[TagService]; !ok {
				v.Key(TagService).Faultf("the tag is missing: it names the destination; or give a backendRef")
			}
		}
	}
}

func (r *OutboundRef) validate(v *Validator) {
	v.backend(r.Kind, r.Name, r.Namespace, false, r.Labels)
	if r.Port != 0 {
		v.Field("port").Port(r.Port)
	} else if r.Kind != "MeshExternalService" {
		v.Field("port").Faultf("the port is missing: give the number of a port of the %s", orService(r.Kind))
	}
}

func orService(kind string) string {
	if kind == "" {
		return "service"
	}
	return kind
}

// backend checks what references to services share: a kind, and a name or labels.
func (v *Validator) backend(kind, name, namespace string, port bool, labels map[string]string) {
	// A kind that is not known may be one of a later version: it leads nowhere, and the view says so.
	if kind == "" || len(kind) > maxLabelName || strings.ContainsFunc(kind, func(r rune) bool { return r > 127 || !alnum(byte(r)) }) {
		v.Field("kind").OneOf(kind, backendKinds[:]...)
	}
	switch {
	case len(labels) > 0 && (name != "" || namespace != "" || port):
		v.Field("labels").Faultf("labels select services by themselves: remove them, or remove name, namespace and port")
	case len(labels) == 0 && name == "":
		v.Field("name").Faultf("the name is missing: give the name of the service, or labels that select services")
	case name != "":
		v.Field("name").name(name)
	}
	v.Field("namespace").optionalName(namespace)
	v.Field("labels").matchLabels(labels)
}

func (t *TransparentProxying) validate(v *Validator) {
	v.Field("redirectPortInbound").Port(t.RedirectPortInbound)
	v.Field("redirectPortOutbound").Port(t.RedirectPortOutbound)
	v.Field("redirectPortInboundV6").portOrZero(t.RedirectPortInboundV6)
	v.Field("ipFamilyMode").optional(t.IPFamilyMode, "UnSpecified", IPFamilyDualStack, IPFamilyIPv4, IPFamilyIPv6)
	serviceNames(v.Field("directAccessServices"), t.DirectAccessServices)
	serviceNames(v.Field("reachableServices"), t.ReachableServices)
	if t.ReachableBackends == nil {
		return
	}
	for i := range t.ReachableBackends.Refs {
		t.ReachableBackends.Refs[i].validate(v.Field("reachableBackends").Field("refs").Index(i))
	}
}

// serviceNames checks a list of values of kuma.io/service.
func serviceNames(v *Validator, list []string) {
	for i, s := range list {
		switch at := v.Index(i); {
		case s == "":
			at.Faultf("the name of a service is empty")
		case s != "*" && !tagChars(s, false):
			at.Faultf("%s is not the name of a service: a value of the tag %s is wanted", quote(s), TagService)
		}
	}
}

func (r *ReachableBackendRef) validate(v *Validator) {
	v.backend(r.Kind, r.Name, r.Namespace, r.Port != nil, r.Labels)
	if r.Port != nil {
		v.Field("port").Port(*r.Port)
	}
}
