package resource

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
)

// Dataplane describes the proxy of one workload: its inbounds and outbounds.
type Dataplane struct {
	Networking Networking `json:"networking"`
	Probes     *Probes    `json:"probes,omitempty"`
	Metrics    *Raw       `json:"metrics,omitempty"` // accepted without effect, like that of the Mesh
	Envoy      *EnvoyConf `json:"envoy,omitempty"`

	// Notes describe annotations that are not in force. They are not part of the document.
	Notes []string `json:"-"`
}

// EnvoyConf names the variant of xDS that the Envoy requests. It is stored without effect; the
// bootstrap selects the variant, and nearside serves both.
type EnvoyConf struct {
	XDSTransportProtocolVariant *string `json:"xdsTransportProtocolVariant,omitempty" check:"DEFAULT|GRPC|DELTA_GRPC"`
}

// Networking holds the addresses and ports of the proxy.
type Networking struct {
	// IP or host name under which others reach the proxy
	Address             string               `json:"address"`
	AdvertisedAddress   string               `json:"advertisedAddress,omitempty"` // replaces Address for other proxies
	Gateway             *Gateway             `json:"gateway,omitempty"`
	Inbound             []Inbound            `json:"inbound,omitempty"`
	Outbound            []Outbound           `json:"outbound,omitempty"`
	TransparentProxying *TransparentProxying `json:"transparentProxying,omitempty"`
	Admin               *Admin               `json:"admin,omitempty"`
}

// Gateway marks a proxy without inbounds. Only delegated gateways are served.
type Gateway struct {
	Tags map[string]string `json:"tags,omitempty"`
	Type string            `json:"type,omitempty"` // "", DELEGATED or BUILTIN
}

// Inbound is one port that the workload serves.
type Inbound struct {
	Port           uint32            `json:"port"`
	Name           string            `json:"name,omitempty"`
	Protocol       string            `json:"protocol,omitempty"`       // "": the tag kuma.io/protocol
	ServicePort    uint32            `json:"servicePort,omitempty"`    // 0: Port
	ServiceAddress string            `json:"serviceAddress,omitempty"` // "": the inbound's address
	Address        string            `json:"address,omitempty"`        // "": Networking.Address
	Tags           map[string]string `json:"tags,omitempty"`
	State          string            `json:"state,omitempty"` // "", Ready, NotReady or Ignored
	Health         *InboundHealth    `json:"health,omitempty"`
	ServiceProbe   *ServiceProbe     `json:"serviceProbe,omitempty"`
}

// Speaks returns the protocol of the workload from the field, or else from the tag; it may be "".
func (in *Inbound) Speaks() string { return cmp.Or(in.Protocol, in.Tags[TagProtocol]) }

// Inbound states.
const (
	InboundReady    = "Ready"
	InboundNotReady = "NotReady"
	InboundIgnored  = "Ignored"
)

// InboundHealth is the older form to mark an inbound as not ready.
type InboundHealth struct {
	Ready bool `json:"ready"`
}

// ServiceProbe makes the agent probe the workload on the node of the proxy. While the probe fails,
// the inbound receives no traffic.
type ServiceProbe struct {
	Interval           *Duration `json:"interval,omitempty"`
	Timeout            *Duration `json:"timeout,omitempty"`
	UnhealthyThreshold *uint32   `json:"unhealthyThreshold,omitempty"`
	HealthyThreshold   *uint32   `json:"healthyThreshold,omitempty"`
	TCP                *Raw      `json:"tcp,omitempty"`
	// HTTP requests a path instead of only opening a connection. Kuma has no such field; see
	// AnnotationHTTPProbes.
	HTTP *HTTPProbe `json:"http,omitempty"`
}

// HTTPProbe is an HTTP request to the workload. A status of 200 to 399 is a success.
type HTTPProbe struct {
	Path string `json:"path"`
}

// Outbound is one destination that the workload reaches at a separate port or address.
type Outbound struct {
	Address    string            `json:"address,omitempty"` // "": 127.0.0.1
	Port       uint32            `json:"port"`
	Tags       map[string]string `json:"tags,omitempty"`
	BackendRef *OutboundRef      `json:"backendRef,omitempty"` // replaces Tags
}

// OutboundRef names a service resource.
type OutboundRef struct {
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Port      uint32            `json:"port,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// IP family modes of a transparent proxy.
const (
	IPFamilyDualStack = "DualStack"
	IPFamilyIPv4      = "IPv4"
	IPFamilyIPv6      = "IPv6"
)

// TransparentProxying means that the workload's traffic is redirected to the proxy.
type TransparentProxying struct {
	RedirectPortInbound   uint32             `json:"redirectPortInbound,omitempty"`
	RedirectPortInboundV6 uint32             `json:"redirectPortInboundV6,omitempty"` // superseded by IPFamilyMode
	RedirectPortOutbound  uint32             `json:"redirectPortOutbound,omitempty"`
	IPFamilyMode          string             `json:"ipFamilyMode,omitempty"`         // "" or UnSpecified: DualStack
	DirectAccessServices  []string           `json:"directAccessServices,omitempty"` // "*" for all
	ReachableServices     []string           `json:"reachableServices,omitempty"`    // empty: all
	ReachableBackends     *ReachableBackends `json:"reachableBackends,omitempty"`    // nil: all; no refs: none
	Redirect              *redirect.Options  `json:"redirect,omitempty"`             // of a pod; Kuma has no such field
}

// ReachableBackends lists the service resources that the proxy's config contains.
type ReachableBackends struct {
	Refs []ReachableBackendRef `json:"refs,omitempty"`
}

// ReachableBackendRef selects services by name (with namespace and port), or only by labels.
type ReachableBackendRef struct {
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Port      *uint32           `json:"port,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Admin is the proxy's admin endpoint in Kuma's format.
type Admin struct {
	Port uint32 `json:"port,omitempty"`
}

// Kinds of services that a dataplane may refer to.
var backendKinds = [...]string{"MeshService", "MeshExternalService", "MeshMultiZoneService"}

// Validate checks the dataplane. References to other resources are checked when the mesh view is
// built.
func (d *Dataplane) Validate(v *Validator) {
	if d.Probes != nil {
		d.Probes.validate(v.Field("probes"))
	}
	n := &d.Networking
	v = v.Field("networking")
	v.Field("address").Host(n.Address)
	if n.AdvertisedAddress != "" {
		v.Field("advertisedAddress").Host(n.AdvertisedAddress)
	}
	n.Admin.validate(v.Field("admin"))
	switch {
	case n.Gateway == nil && len(n.Inbound) == 0:
		v.Faultf("a dataplane needs at least one inbound or a gateway section")
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

// ownPort checks the port of item i of a list whose items differ in address or port. seen maps the
// previous items to their indices.
func (v *Validator) ownPort(address string, port uint32, list string, i int, seen map[string]int) {
	if !v.Port(port) {
		return
	}
	key := boundAt(address, port)
	if first, ok := seen[key]; ok {
		v.Faultf("%d is already the port of %s[%d] on %s: each %s has its own", port, list, first, address, list)
	} else {
		seen[key] = i
	}
}

// boundAt returns a key that is equal for equal addresses and ports.
func boundAt(address string, port uint32) string {
	if a, err := netip.ParseAddr(address); err == nil {
		address = a.Unmap().String()
	}
	return strings.ToLower(address) + " " + strconv.FormatUint(uint64(port), 10)
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
		if v.Field("port").Port(in.Port) {
			n.validateShared(v, i, seen, boundAt(address, in.Port))
		}
		v.Field("servicePort").portOrZero(in.ServicePort)
		if in.ServiceAddress != "" {
			v.Field("serviceAddress").ip(in.ServiceAddress)
		}
		v.Field("protocol").optional(in.Protocol, protocols[:]...)
		if len(in.Tags) > 0 { // without tags, MeshServices select the inbound by labels
			v.Field("tags").serviceTags(in.Tags)
		}
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
	if p.HTTP != nil {
		if fault := pathFault(p.HTTP.Path); fault != "" {
			v.Field("http").Field("path").Faultf("%s", fault)
		}
	}
}

// defaultOutboundAddress is the listener address of an outbound without an address.
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

// couldBeKind reports whether a string has the form of a resource kind, known or not.
func couldBeKind(kind string) bool {
	return kind != "" && len(kind) <= maxLabelName &&
		!strings.ContainsFunc(kind, func(r rune) bool { return r > 127 || !alnum(byte(r)) })
}

// backend checks the fields that all references to services share: a kind, and a name or labels.
func (v *Validator) backend(kind, name, namespace string, port bool, labels map[string]string) {
	// An unknown kind may come from a later version. It matches nothing, and the view warns about
	// it.
	if !couldBeKind(kind) {
		v.Field("kind").OneOf(kind, backendKinds[:]...)
	}
	switch {
	case len(labels) > 0 && (name != "" || namespace != "" || port):
		v.Field("labels").Faultf("labels exclude name, namespace, and port: keep the name to select one service, " +
			"because labels select all that have them")
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
	if t.Redirect != nil {
		for _, f := range t.Redirect.Faults() {
			v.Field("redirect").Field(f.Name).Faultf("%s", f.Reason)
		}
	}
	if t.ReachableBackends == nil {
		return
	}
	for i := range t.ReachableBackends.Refs {
		r, at := &t.ReachableBackends.Refs[i], v.Field("reachableBackends").Field("refs").Index(i)
		r.validate(at)
		if couldBeKind(r.Kind) { // others are already rejected
			at.Field("kind").OneOf(r.Kind, backendKinds[:]...)
		}
	}
}

// serviceNames checks a list of values of kuma.io/service.
func serviceNames(v *Validator, list []string) {
	for i, s := range list {
		switch at := v.Index(i); {
		case s == "":
			at.Faultf("the name of a service is empty")
		case s != "*" && !tagChars(s, false):
			at.Faultf("%s is not the name of a service: a value of the tag %s is expected", strict.Quote(s), TagService)
		}
	}
}

func (r *ReachableBackendRef) validate(v *Validator) {
	v.backend(r.Kind, r.Name, r.Namespace, r.Port != nil, r.Labels)
	if r.Port != nil {
		v.Field("port").Port(*r.Port)
	}
}
