package resource

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Validate checks the external service.
func (s *ExternalService) Validate(v *Validator) {
	v.Field("tags").serviceTags(s.Tags)
	v = v.Field("networking")
	v.Field("address").HostPort(s.Networking.Address)
	t := s.Networking.TLS
	if t == nil {
		return
	}
	v = v.Field("tls")
	t.CACert.validate(v.Field("caCert"))
	v.keyPair(t.ClientCert, t.ClientKey)
	v.Field("serverName").serverName(t.ServerName)
}

// Validate checks the service.
func (s *MeshService) Validate(v *Validator) {
	sel, n := v.Field("selector"), 0
	if len(s.Selector.DataplaneTags) > 0 {
		n++
		sel.Field("dataplaneTags").Tags(s.Selector.DataplaneTags, false)
	}
	if s.Selector.DataplaneLabels != nil {
		n++
		sel.Field("dataplaneLabels").Field("matchLabels").matchLabels(s.Selector.DataplaneLabels.MatchLabels)
	}
	if s.Selector.DataplaneRef != nil {
		n++
		sel.Field("dataplaneRef").Field("name").name(s.Selector.DataplaneRef.Name)
	}
	if n > 1 {
		sel.Faultf("%d selectors are given: keep one of dataplaneTags, dataplaneLabels, dataplaneRef", n)
	}
	ports := newPortSet(v.Field("ports"))
	for i := range s.Ports {
		p := &s.Ports[i]
		v := ports.add(p.Name, p.Port, p.AppProtocol)
		if p.TargetPort != nil && p.TargetPort.String == "" {
			v.Field("targetPort").Port(p.TargetPort.Int)
		}
	}
	for i, id := range s.Identities {
		v := v.Field("identities").Index(i)
		v.Field("type").OneOf(id.Type, IdentityServiceTag, IdentitySPIFFE)
		if id.Value == "" {
			v.Field("value").Faultf("the value is missing")
		}
	}
	v.Field("state").optional(s.State, ServiceAvailable, ServiceUnavailable)
	s.Status.validate(v.Field("status"))
}

// portSet checks that the numbers and names of a service's ports are unique.
type portSet struct {
	list    *Validator
	n       int
	numbers map[uint32]int
	names   map[string]int
}

func newPortSet(list *Validator) *portSet {
	return &portSet{list: list, numbers: map[uint32]int{}, names: map[string]int{}}
}

func (s *portSet) add(name string, number uint32, protocol string) *Validator {
	v := s.list.Index(s.n)
	if v.Field("port").Port(number) {
		if first, ok := s.numbers[number]; ok {
			v.Field("port").Faultf("%d is already the port of ports[%d]: port numbers must be unique", number, first)
		} else {
			s.numbers[number] = s.n
		}
	}
	if name != "" {
		if first, ok := s.names[name]; ok {
			v.Field("name").Faultf("%s is already the name of ports[%d]: port names must be unique", strict.Quote(name), first)
		} else {
			s.names[name] = s.n
		}
		v.Field("name").name(name)
	}
	v.Field("appProtocol").optional(protocol, protocols[:]...)
	s.n++
	return v
}

func (s *ServiceStatus) validate(v *Validator) {
	if s == nil {
		return
	}
	for i, vip := range s.VIPs {
		v.Field("vips").Index(i).Field("ip").bindIP(vip.IP)
	}
	if s.VIP != nil && s.VIP.IP != "" { // an empty address counts as absent
		v.Field("vip").Field("ip").bindIP(s.VIP.IP)
	}
	if s.TLS != nil && s.TLS.Status != "" {
		v.Field("tls").Field("status").OneOf(s.TLS.Status, TLSReady, TLSNotReady)
	}
	for i, a := range s.Addresses {
		v.Field("addresses").Index(i).Field("hostname").HostName(a.Hostname, "a host name")
	}
}

// TLS versions in order.
var tlsVersions = [...]string{"TLS10", "TLS11", "TLS12", "TLS13"}

// Validate checks the service.
func (s *MeshExternalService) Validate(v *Validator) {
	m := v.Field("match")
	m.Field("type").optional(s.Match.Type, "HostnameGenerator")
	m.Field("port").Port(s.Match.Port)
	m.Field("protocol").optional(s.Match.Protocol, "tcp", "tls", "http", "http2", "grpc")
	if len(s.Endpoints) == 0 && s.Extension == nil {
		v.Field("endpoints").Faultf("the endpoints are missing: give at least one address")
	}
	for i, e := range s.Endpoints {
		e.validate(v.Field("endpoints").Index(i))
		e.validatePriority(v.Field("endpoints").Index(i))
	}
	if s.TLS != nil {
		s.TLS.validate(v.Field("tls"))
	}
	s.Status.validate(v.Field("status"))
}

func (e MeshExternalEndpoint) validate(v *Validator) {
	if path, ok := strings.CutPrefix(e.Address, "unix://"); ok {
		// The kernel's sun_path holds 108 bytes including the final NUL (unix(7)).
		if !strings.HasPrefix(path, "/") || len(path) > 107 {
			v.Field("address").Faultf("%s is not a socket: write unix:// and an absolute path of at most 107 bytes",
				strict.Quote(e.Address))
		}
		v.unset(e.Port != 0, "port", "a unix socket has no port: remove it")
		return
	}
	v.Field("address").Host(e.Address)
	v.Field("port").Port(e.Port)
}

// maxPriority is Envoy's limit for the priority of endpoints.
const maxPriority = 128

// validatePriority checks the priority of an endpoint.
func (e MeshExternalEndpoint) validatePriority(v *Validator) {
	if e.Priority > maxPriority {
		v.Field("priority").Faultf("%d is not a priority: 0, the first, to %d is allowed", e.Priority, maxPriority)
	}
}

func (t *MeshExternalTLS) validate(v *Validator) {
	if ver := t.Version; ver != nil {
		v := v.Field("version")
		rank := func(field, s string) int {
			if s == "" || s == "TLSAuto" {
				return -1
			}
			v.Field(field).OneOf(s, append([]string{"TLSAuto"}, tlsVersions[:]...)...)
			return slices.Index(tlsVersions[:], s)
		}
		lo, hi := rank("min", ver.Min), rank("max", ver.Max)
		if lo >= 0 && hi >= 0 && lo > hi {
			v.Field("min").Faultf("%s is above the maximum %s", ver.Min, ver.Max)
		}
	}
	ver := t.Verification
	if ver == nil {
		return
	}
	v = v.Field("verification")
	v.Field("mode").optional(ver.Mode, "Secured", "SkipSAN", "SkipCA", "SkipAll")
	v.Field("serverName").serverName(ver.ServerName)
	for i, s := range ver.SubjectAltNames {
		v := v.Field("subjectAltNames").Index(i)
		v.Field("type").optional(s.Type, "Exact", "Prefix")
		if s.Value == "" {
			v.Field("value").Faultf("the value is missing")
		}
	}
	ver.CACert.validate(v.Field("caCert"))
	v.keyPair(ver.ClientCert, ver.ClientKey)
}

// Validate checks the service.
func (s *MeshMultiZoneService) Validate(v *Validator) {
	labels := v.Field("selector").Field("meshService").Field("matchLabels")
	if len(s.Selector.MeshService.MatchLabels) == 0 {
		labels.Faultf("the labels are missing: give those that the MeshServices have in common")
	}
	labels.matchLabels(s.Selector.MeshService.MatchLabels)
	if len(s.Ports) == 0 {
		v.Field("ports").Faultf("the ports are missing: give at least one")
	}
	ports := newPortSet(v.Field("ports"))
	for i := range s.Ports {
		ports.add(s.Ports[i].Name, s.Ports[i].Port, s.Ports[i].AppProtocol)
	}
	s.Status.validate(v.Field("status"))
}
