package effect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// question asks why a policy, or one field of it, has no effect on a proxy. Nothing overrides it.
type question struct {
	mesh      *generate.Mesh
	dataplane *resource.Resource
	policy    *resource.Resource
	warnings  []mesh.Warning // of the proxy's config

	// The fields below are set for a field.

	item     string          // path of the item's conf in the document, such as spec.to[0].default
	path     string          // of the field in the conf, such as http.requestTimeout
	conf     resource.Conf   // of the item
	services []*mesh.Service // destinations with the same answer; nil for an inbound or the whole proxy
	inbound  int             // index of the inbound, or -1
}

// reasonOf says why a policy, or a field of it, has no effect: "redis speaks tcp". It returns "" if
// the reason is unknown.
func reasonOf(q question) string {
	if q.item == "" {
		return q.warned("")
	}
	if c, ok := q.conf.(policy.IdleConf); ok {
		if reason := c.Idle(q.path); reason != "" {
			return reason
		}
	}
	if reason := q.disabled(); reason != "" {
		return reason
	}
	if reason := q.wrongProtocol(); reason != "" {
		return reason
	}
	return q.warned(q.path)
}

// disabled returns a reason if a section that contains the field is disabled.
func (q *question) disabled() string {
	reason := ""
	eachField(confOf(q.conf), "", func(path string, value any) {
		if section, ok := strings.CutSuffix(path, ".disabled"); ok && value == true &&
			strings.HasPrefix(q.path, section+".") && q.path != path {
			reason = path + " is true"
		}
	})
	return reason
}

// wrongProtocol returns a reason if a field does not apply to the protocol of the destinations or
// of the inbound.
func (q *question) wrongProtocol() string {
	spec, _ := q.dataplane.Spec.(*resource.Dataplane)
	var protocols []string
	who := ""
	switch {
	case len(q.services) > 0:
		for _, s := range q.services {
			protocols = append(protocols, protocolOf(s))
		}
		if who = DestinationOf(q.services[0]).String() + " speaks "; len(q.services) > 1 {
			who = fmt.Sprintf("%s and %s speak ", DestinationOf(q.services[0]).String(),
				plural.Count(len(q.services)-1, "other destination"))
		}
	case spec == nil:
		return ""
	case q.inbound >= 0 && q.inbound < len(spec.Networking.Inbound):
		in := &spec.Networking.Inbound[q.inbound]
		who, protocols = fmt.Sprintf("inbound %d speaks ", in.Port), []string{declared(in.Speaks())}
	default:
		for i := range spec.Networking.Inbound {
			protocols = append(protocols, declared(spec.Networking.Inbound[i].Speaks()))
		}
		outbounds, _ := q.mesh.Policies.Outbounds(q.dataplane)
		for i := range outbounds {
			protocols = append(protocols, protocolOf(outbounds[i].Service))
		}
		who = "all inbounds and outbounds speak "
	}
	for _, p := range protocols {
		if policy.Fits(q.conf, q.path, mesh.ParseProtocol(p)) {
			return ""
		}
	}
	slices.Sort(protocols)
	if protocols = slices.Compact(protocols); len(protocols) == 0 {
		return ""
	}
	return who + strings.Join(protocols, " or ")
}

// protocolOf returns the protocol of a service as its instances declare it.
func protocolOf(s *mesh.Service) string {
	if s.Protocol == mesh.ProtocolTCP && s.Endpoints != nil && len(s.Endpoints.List) > 0 {
		for i := range s.Endpoints.List {
			if s.Endpoints.List[i].Tags[resource.TagProtocol] != s.Endpoints.List[0].Tags[resource.TagProtocol] {
				return string(s.Protocol)
			}
		}
		if p := s.Endpoints.List[0].Tags[resource.TagProtocol]; mesh.ParseProtocol(p) == mesh.ProtocolTCP {
			return declared(p)
		}
	}
	return string(s.Protocol)
}

// declared returns a protocol; none is tcp.
func declared(protocol string) string {
	if protocol == "" {
		return string(mesh.ProtocolTCP)
	}
	return protocol
}

// lossWords occur in the warnings that say that a part of a policy is not in force.
var lossWords = []string{"no effect", "not enforced", "not served", "dropped", "left out", "disabled", "closed",
	"matches select none"}

// warned returns the warning about the policy that says why a field has no effect; "" if there is
// none. Warnings that name the field come first.
func (q *question) warned(path string) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	general := ""
	for _, w := range q.warnings {
		if w.Resource != q.policy.Key || !slices.ContainsFunc(lossWords, func(s string) bool {
			return strings.Contains(w.Reason, s)
		}) {
			continue
		}
		if path != "" && len(last) > 4 && strings.Contains(w.Reason, last) {
			return w.Reason
		}
		if general == "" && !strings.Contains(w.Reason, "[") {
			general = w.Reason
		}
	}
	return general
}

// sameReason reports whether two reasons are equal, except for the names of destinations that use a
// protocol.
func sameReason(a, b string) bool {
	p := protocolIn(a)
	return a == b || p != "" && p == protocolIn(b)
}

// protocolIn returns the protocol in a reason of wrongProtocol, or "".
func protocolIn(reason string) string {
	for _, verb := range [...]string{" speaks ", " speak "} {
		if _, protocol, ok := strings.Cut(reason, verb); ok {
			return protocol
		}
	}
	return ""
}

// joinReasons removes the names from reasons for fields of several places that become one.
func joinReasons(fields, others []Set) {
	for i := range fields {
		if fields[i].Reason != others[i].Reason {
			fields[i].Reason = "they speak " + protocolIn(fields[i].Reason)
		}
	}
}
