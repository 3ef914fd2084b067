package healthcheck

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

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
	v.Field("interval").Positive(c.Interval)
	v.Field("timeout").Positive(c.Timeout)
	v.Field("unhealthyThreshold").AtLeastOne(c.UnhealthyThreshold)
	v.Field("healthyThreshold").AtLeastOne(c.HealthyThreshold)
	v.Field("initialJitter").Positive(c.InitialJitter)
	v.Field("intervalJitter").Positive(c.IntervalJitter)
	v.Field("intervalJitterPercent").Percent(c.IntervalJitterPercent)
	v.Field("healthyPanicThreshold").Percentage(c.HealthyPanicThreshold)
	v.Field("noTrafficInterval").Positive(c.NoTrafficInterval)
	if c.EventLogPath != "" {
		validatePath(v.Field("eventLogPath"), c.EventLogPath, "the path of the file")
	}
	if c.TCP != nil {
		c.TCP.validate(v.Field("tcp"))
	}
	if c.HTTP != nil {
		c.HTTP.validate(v.Field("http"))
	}
	if c.GRPC != nil {
		validateText(v.Field("grpc").Field("serviceName"), c.GRPC.ServiceName)
		validateText(v.Field("grpc").Field("authority"), c.GRPC.Authority)
	}
}

func (t *TCP) validate(v *resource.Validator) {
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

func (h *HTTP) validate(v *resource.Validator) {
	if h.Path != nil {
		validatePath(v.Field("path"), *h.Path, "the path")
	}
	if r := h.RequestHeadersToAdd; r != nil {
		at := v.Field("requestHeadersToAdd")
		if toolkit.AtMost(at.Field("set"), len(r.Set), maxHeaders, "headers") && toolkit.AtMost(at.Field("add"), len(r.Add), maxHeaders, "headers") {
			r.Check(at, "the host of the probe is the name of the cluster", validateText)
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

// validatePath checks an absolute path without control characters.
func validatePath(v *resource.Validator, s, what string) {
	switch {
	case s == "":
		v.Faultf("%s is empty: give one that begins with / or remove the field", what)
	case s[0] != '/':
		v.Faultf("%q: %s begins with /", toolkit.Clip(s), what)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("%s has a line break or a zero byte", what)
	default:
		validateText(v, s)
	}
}

func validateText(v *resource.Validator, s string) {
	switch {
	case len(s) > maxText:
		v.Faultf("the value has %d bytes, at most %d are allowed", len(s), maxText)
	case strings.ContainsAny(s, "\r\n\x00"):
		v.Faultf("the value has a line break or a zero byte")
	}
}
