package accesslog

import (
	"net"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// The placeholders of Kuma, which are replaced before Envoy sees a format.
const (
	sourceAddress     = "KUMA_SOURCE_ADDRESS" // with the port 0, whatever the connection has
	sourceIP          = "KUMA_SOURCE_ADDRESS_WITHOUT_PORT"
	sourceService     = "KUMA_SOURCE_SERVICE"
	destination       = "KUMA_DESTINATION_SERVICE"
	meshName          = "KUMA_MESH"
	trafficDirection  = "KUMA_TRAFFIC_DIRECTION"
	zoneName          = "KUMA_ZONE"
	workloadID        = "KUMA_WORKLOAD"
	labelWorkload     = "kuma.io/workload"
	unknownService    = "unknown"
	DirectionInbound  = "INBOUND"
	DirectionOutbound = "OUTBOUND"
	DirectionNone     = "UNSPECIFIED"
)

var placeholders = [...]string{sourceAddress, sourceIP, sourceService, destination, meshName, trafficDirection, zoneName, workloadID}

// The formats of logs that name none: those of the reference.
const (
	defaultHTTP = `[%START_TIME%] %KUMA_MESH% "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%KUMA_SOURCE_SERVICE%" ` +
		`"%KUMA_DESTINATION_SERVICE%" "%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%" "%UPSTREAM_HOST%"`
	defaultTCP = `[%START_TIME%] %RESPONSE_FLAGS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->` +
		`%UPSTREAM_HOST%(%KUMA_DESTINATION_SERVICE%) took %DURATION%ms, sent %BYTES_SENT% bytes, received: %BYTES_RECEIVED% bytes`
)

// values is what the placeholders stand for.
type values struct {
	source, destination, direction string

	address, mesh, zone, workload string // of the proxy, the same for all its traffic
}

// valuesOf are the values that a proxy gives by itself. Its address is that which others reach it at, in both
// directions, as in the reference.
func valuesOf(c *policy.Context) values {
	n := &c.Dataplane.Networking
	v := values{address: n.Address, mesh: c.View.Name, zone: c.View.Zone}
	if n.AdvertisedAddress != "" {
		v.address = n.AdvertisedAddress
	}
	if z := c.Proxy.Labels[resource.LabelZone]; z != "" {
		v.zone = z
	}
	if w := c.Proxy.Labels[labelWorkload]; w != "" {
		v.workload = strings.Join([]string{"kri", "wl", v.mesh, v.zone, c.Proxy.Namespace(), w, ""}, "_")
	}
	return v
}

// serviceOf is the service that a proxy is known as: that of its gateway, or the first by name of its inbounds'.
func serviceOf(d *resource.Dataplane) string {
	if g := d.Networking.Gateway; g != nil && g.Tags[resource.TagService] != "" {
		return g.Tags[resource.TagService]
	}
	first := ""
	for i := range d.Networking.Inbound {
		if s := d.Networking.Inbound[i].Tags[resource.TagService]; s != "" && (first == "" || s < first) {
			first = s
		}
	}
	if first == "" {
		return unknownService
	}
	return first
}

// of is the value of a placeholder.
func (v *values) of(placeholder string) string {
	switch placeholder {
	case sourceAddress:
		return net.JoinHostPort(v.address, "0")
	case sourceIP:
		return v.address
	case sourceService:
		return v.source
	case destination:
		return v.destination
	case meshName:
		return v.mesh
	case trafficDirection:
		return v.direction
	case zoneName:
		return v.zone
	case workloadID:
		return v.workload
	}
	return ""
}

// uses reports whether a template has a piece like that.
func (t *template) uses(like func(*substitution.Segment) bool) bool {
	has := func(segs []substitution.Segment) bool {
		return slices.ContainsFunc(segs, func(s substitution.Segment) bool { return like(&s) })
	}
	return has(t.text) || slices.ContainsFunc(t.values, has)
}

func ofDestination(s *substitution.Segment) bool { return s.Placeholder && s.Operator == destination }

// aboutRequests returns an operator that has no value in the log of connections, "" for none.
func (t *template) aboutRequests() string {
	found := ""
	t.uses(func(s *substitution.Segment) bool {
		if s.HTTP() {
			found = s.Raw
		}
		return found != ""
	})
	return found
}
