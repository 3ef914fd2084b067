package healthcheck

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf is the conf of a MeshHealthCheck.
type Conf struct {
	Settings
	TCP             *TCP  `json:"tcp,omitempty"`
	HTTP            *HTTP `json:"http,omitempty"`
	GRPC            *GRPC `json:"grpc,omitempty"`
	ReuseConnection *bool `json:"reuseConnection,omitempty"` // use one connection for all probes. Default true
}

// Fits reports whether a field applies to a protocol.
func (c *Conf) Fits(path string, p mesh.Protocol) bool {
	switch policy.SectionOf(path) {
	case "http":
		return p == mesh.ProtocolHTTP || p == mesh.ProtocolHTTP2
	case "grpc":
		return p == mesh.ProtocolGRPC
	case "tcp":
		return path == "tcp.disabled" || c.tcpServes(p) && !c.probes(p)
	}
	return true
}

// probes reports whether a probe other than that of TCP is enabled for a protocol.
func (c *Conf) probes(p mesh.Protocol) bool {
	switch p {
	case mesh.ProtocolHTTP, mesh.ProtocolHTTP2:
		return c.HTTP != nil && !toolkit.Or(c.HTTP.Disabled, false)
	case mesh.ProtocolGRPC:
		return c.GRPC != nil && !toolkit.Or(c.GRPC.Disabled, false)
	}
	return false
}

// Idle says why other fields make a field ineffective.
func (c *Conf) Idle(path string) string {
	enabled := false
	for _, p := range [...]mesh.Protocol{mesh.ProtocolHTTP, mesh.ProtocolGRPC, mesh.ProtocolTCP} {
		enabled = enabled || c.probes(p)
	}
	if !enabled && (c.TCP == nil || toolkit.Or(c.TCP.Disabled, false)) && policy.SectionOf(path) == "" {
		return "no probe is enabled; give tcp, http, or grpc"
	}
	return ""
}

// Settings are the fields that MeshHealthCheck and HealthCheck have in common.
type Settings struct {
	// time between two probes. Default 1m
	Interval *resource.Duration `json:"interval,omitempty" check:"positive"`
	// timeout of a probe. Default 15s
	Timeout *resource.Duration `json:"timeout,omitempty" check:"positive"`
	// number of failures until an endpoint is unhealthy. Default 5
	UnhealthyThreshold *uint32 `json:"unhealthyThreshold,omitempty" check:"atLeastOne"`
	// number of successes until an endpoint is healthy. Default 1
	HealthyThreshold *uint32 `json:"healthyThreshold,omitempty" check:"atLeastOne"`
	// InitialJitter is the maximum random delay of the first probe.
	InitialJitter *resource.Duration `json:"initialJitter,omitempty" check:"positive"`
	// maximum random delay that is added to each interval
	IntervalJitter *resource.Duration `json:"intervalJitter,omitempty" check:"positive"`
	// maximum random delay that is added to each interval, in percent of the interval
	IntervalJitterPercent *uint32 `json:"intervalJitterPercent,omitempty" check:"percent"`
	// HealthyPanicThreshold is the percentage of healthy endpoints below which all endpoints
	// receive traffic. Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty" check:"percentage"`
	// FailTrafficOnPanic fails requests below that percentage.
	FailTrafficOnPanic *bool `json:"failTrafficOnPanic,omitempty"`
	// EventLogPath is a file to which the proxy writes changes of endpoint health.
	EventLogPath                 string `json:"eventLogPath,omitempty"`
	AlwaysLogHealthCheckFailures *bool  `json:"alwaysLogHealthCheckFailures,omitempty"`
	// probe interval while the cluster is unused. Default 1m
	NoTrafficInterval *resource.Duration `json:"noTrafficInterval,omitempty" check:"positive"`
}

// TCP probes with bytes, in base64 in the document. Without Send, an established connection is
// sufficient.
type TCP struct {
	Disabled *bool    `json:"disabled,omitempty"`
	Send     []byte   `json:"send,omitempty"`
	Receive  [][]byte `json:"receive,omitempty"` // expected in this order, possibly with other bytes in between
}

// HTTP probes with a GET request.
type HTTP struct {
	Disabled            *bool                 `json:"disabled,omitempty"`
	Path                *string               `json:"path,omitempty"` // Default /
	RequestHeadersToAdd *toolkit.HeaderValues `json:"requestHeadersToAdd,omitempty"`
	ExpectedStatuses    []uint32              `json:"expectedStatuses,omitempty"` // Default 200
}

// GRPC probes with grpc.health.v1.Health/Check.
type GRPC struct {
	Disabled    *bool  `json:"disabled,omitempty"`
	ServiceName string `json:"serviceName,omitempty"` // service to check. Default the whole server
	Authority   string `json:"authority,omitempty"`   // Default the name of the cluster
}

// Limits of a conf.
const (
	MaxHeaders  = 16 // of each list
	maxStatuses = 500
	maxBlocks   = 64       // blocks of receive
	maxPayload  = 64 << 10 // bytes of one block
	maxText     = 4096     // bytes of a path or name
)

// NoHost explains why a probe cannot set the header host.
const NoHost = "the host of the probe is the name of the cluster"

// Validate checks that there is a probe and that its values are valid.
func (c *Conf) Validate(v *resource.Validator) {
	if c.TCP == nil && c.HTTP == nil && c.GRPC == nil {
		v.Faultf("no probe is given: give at least one of http, tcp, grpc")
	}
	if c.EventLogPath != "" {
		ValidatePath(v.Field("eventLogPath"), c.EventLogPath, "the path of the file")
	}
	if c.TCP != nil {
		c.TCP.Check(v.Field("tcp"))
	}
	if c.HTTP != nil {
		c.HTTP.Check(v.Field("http"))
	}
	if c.GRPC != nil {
		ValidateText(v.Field("grpc").Field("serviceName"), c.GRPC.ServiceName)
		ValidateText(v.Field("grpc").Field("authority"), c.GRPC.Authority)
	}
}

// Check validates the bytes.
func (t *TCP) Check(v *resource.Validator) {
	validateBlock(v.Field("send"), t.Send)
	at := v.Field("receive")
	if !toolkit.AtMost(at, len(t.Receive), maxBlocks, "blocks") {
		return
	}
	for i, b := range t.Receive {
		if len(b) == 0 {
			at.Index(i).Faultf("the block is empty: give bytes in base64 or remove it")
		}
		validateBlock(at.Index(i), b)
	}
}

func validateBlock(v *resource.Validator, b []byte) {
	if len(b) > maxPayload {
		v.Faultf("the block has %d bytes, and at most %d are allowed", len(b), maxPayload)
	}
}

// Check validates the request and the expected statuses.
func (h *HTTP) Check(v *resource.Validator) {
	if h.Path != nil {
		ValidatePath(v.Field("path"), *h.Path, "the path")
	}
	if r := h.RequestHeadersToAdd; r != nil {
		at := v.Field("requestHeadersToAdd")
		if toolkit.AtMost(at.Field("set"), len(r.Set), MaxHeaders, "headers") &&
			toolkit.AtMost(at.Field("add"), len(r.Add), MaxHeaders, "headers") {
			r.Check(at, NoHost, ValidateText)
		}
	}
	at := v.Field("expectedStatuses")
	if !toolkit.AtMost(at, len(h.ExpectedStatuses), maxStatuses, "statuses") {
		return
	}
	for i, s := range h.ExpectedStatuses {
		if s < 100 || s > 599 {
			at.Index(i).Faultf("%d is not an HTTP status: give 100 to 599", s)
		}
	}
}

// ValidatePath validates an absolute path without control characters. what names it in messages.
func ValidatePath(v *resource.Validator, s, what string) {
	switch {
	case s == "":
		v.Faultf("%s is empty: give a path that begins with /, or remove the field", what)
	case s[0] != '/':
		v.Faultf("%q is not absolute: %s must begin with /", toolkit.Clip(s), what)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("%s contains a line break or a zero byte", what)
	default:
		ValidateText(v, s)
	}
}

// ValidateText validates a string of a probe.
func ValidateText(v *resource.Validator, s string) {
	switch {
	case len(s) > maxText:
		v.Faultf("the value has %d bytes, and at most %d are allowed", len(s), maxText)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("the value contains a line break or a zero byte")
	}
}
