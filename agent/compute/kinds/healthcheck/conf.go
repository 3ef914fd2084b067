package healthcheck

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf says how the endpoints of a service are probed.
type Conf struct {
	// between two probes. Default 1m
	Interval *resource.Duration `json:"interval,omitempty" check:"positive"`
	// of a probe. Default 15s
	Timeout *resource.Duration `json:"timeout,omitempty" check:"positive"`
	// failures until an endpoint is unhealthy. Default 5
	UnhealthyThreshold *uint32 `json:"unhealthyThreshold,omitempty" check:"atLeastOne"`
	// successes until it is back. Default 1
	HealthyThreshold *uint32 `json:"healthyThreshold,omitempty" check:"atLeastOne"`
	// InitialJitter delays the first probe by up to that much; the others are added to every interval.
	InitialJitter         *resource.Duration `json:"initialJitter,omitempty" check:"positive"`
	IntervalJitter        *resource.Duration `json:"intervalJitter,omitempty" check:"positive"`
	IntervalJitterPercent *uint32            `json:"intervalJitterPercent,omitempty" check:"percent"`
	// HealthyPanicThreshold is the percentage of healthy endpoints below which all are used.
	// Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty" check:"percentage"`
	// FailTrafficOnPanic sends nothing, rather than to all, below that percentage.
	FailTrafficOnPanic *bool `json:"failTrafficOnPanic,omitempty"`
	// EventLogPath is a file to which the proxy writes what becomes of endpoints.
	EventLogPath                 string `json:"eventLogPath,omitempty"`
	AlwaysLogHealthCheckFailures *bool  `json:"alwaysLogHealthCheckFailures,omitempty"`
	// while the cluster is not used. Default 1m
	NoTrafficInterval *resource.Duration `json:"noTrafficInterval,omitempty" check:"positive"`
	TCP               *TCP               `json:"tcp,omitempty"`
	HTTP              *HTTP              `json:"http,omitempty"`
	GRPC              *GRPC              `json:"grpc,omitempty"`
	ReuseConnection   *bool              `json:"reuseConnection,omitempty"` // for the next probe. Default true
}

// TCP probes with bytes, in base64 in the document. Without Send a connection is enough.
type TCP struct {
	Disabled *bool    `json:"disabled,omitempty"`
	Send     []byte   `json:"send,omitempty"`
	Receive  [][]byte `json:"receive,omitempty"` // in this order, with anything between
}

// HTTP probes with a GET request.
type HTTP struct {
	Disabled            *bool                 `json:"disabled,omitempty"`
	Path                *string               `json:"path,omitempty"` // default /
	RequestHeadersToAdd *toolkit.HeaderValues `json:"requestHeadersToAdd,omitempty"`
	ExpectedStatuses    []uint32              `json:"expectedStatuses,omitempty"` // default 200
}

// GRPC probes with grpc.health.v1.Health/Check.
type GRPC struct {
	Disabled    *bool  `json:"disabled,omitempty"`
	ServiceName string `json:"serviceName,omitempty"` // asked about. Default the whole server
	Authority   string `json:"authority,omitempty"`   // default the name of the cluster
}

// Bounds of a conf.
const (
	maxHeaders  = 16 // of each list
	maxStatuses = 500
	maxBlocks   = 64       // that are to be received
	maxPayload  = 64 << 10 // bytes of one block
	maxText     = 4096     // bytes of a path or name
)

// Validate checks that there is a probe, and what it is made of.
func (c *Conf) Validate(v *resource.Validator) {
	if c.TCP == nil && c.HTTP == nil && c.GRPC == nil {
		v.Faultf("nothing says how to probe: give at least one of http, tcp, grpc")
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

// Check checks the bytes.
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
		v.Faultf("the block has %d bytes, at most %d are allowed", len(b), maxPayload)
	}
}

// Check checks the request and what is expected.
func (h *HTTP) Check(v *resource.Validator) {
	if h.Path != nil {
		ValidatePath(v.Field("path"), *h.Path, "the path")
	}
	if r := h.RequestHeadersToAdd; r != nil {
		at := v.Field("requestHeadersToAdd")
		if toolkit.AtMost(at.Field("set"), len(r.Set), maxHeaders, "headers") &&
			toolkit.AtMost(at.Field("add"), len(r.Add), maxHeaders, "headers") {
			r.Check(at, "the host of the probe is the name of the cluster", ValidateText)
		}
	}
	at := v.Field("expectedStatuses")
	if !toolkit.AtMost(at, len(h.ExpectedStatuses), maxStatuses, "statuses") {
		return
	}
	for i, s := range h.ExpectedStatuses {
		if s < 100 || s > 599 {
			at.Index(i).Faultf("%d is not an HTTP status: 100 to 599 is allowed", s)
		}
	}
}

// ValidatePath checks an absolute path without control characters.
func ValidatePath(v *resource.Validator, s, what string) {
	switch {
	case s == "":
		v.Faultf("%s is empty: give one that begins with / or remove the field", what)
	case s[0] != '/':
		v.Faultf("%q: %s begins with /", toolkit.Clip(s), what)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("%s has a line break or a zero byte", what)
	default:
		ValidateText(v, s)
	}
}

// ValidateText checks a text of a probe.
func ValidateText(v *resource.Validator, s string) {
	switch {
	case len(s) > maxText:
		v.Faultf("the value has %d bytes, at most %d are allowed", len(s), maxText)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("the value has a line break or a zero byte")
	}
}
