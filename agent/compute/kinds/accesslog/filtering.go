package accesslog

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Filtering selects the entries that satisfy all of its conditions.
type Filtering struct {
	// Headers are conditions on request headers by name. ":status" is the status of the response.
	Headers map[string]HeaderFilter `json:"headers,omitempty"`
	// Duration is a condition on the duration of the request or connection, in whole milliseconds.
	Duration *DurationFilter `json:"duration,omitempty"`
	// ResponseFlags selects entries with one of these flags, in the notation of %RESPONSE_FLAGS%.
	ResponseFlags []string `json:"responseFlags,omitempty"`
	// GRPCStatus selects entries with one of these gRPC status names.
	GRPCStatus []string `json:"grpcStatus,omitempty"`
}

// HeaderFilter is a condition on one header.
type HeaderFilter struct {
	Op    string `json:"op"` // eq, ne, ge, le or present
	Value string `json:"value,omitempty"`
}

// DurationFilter is a condition on the duration.
type DurationFilter struct {
	Op    string             `json:"op"` // eq, ne, ge or le
	Value *resource.Duration `json:"value,omitempty"`
}

const (
	opEqual   = "eq"
	opNot     = "ne"
	opAtLeast = "ge"
	opAtMost  = "le"
	opPresent = "present"

	statusHeader = ":status"
	maxHeaders   = 32
)

// responseFlags are the flags that Envoy's filter supports
// (envoy.config.accesslog.v3.ResponseFlagFilter).
var responseFlags = [...]string{
	"DC", "DF", "DI", "DO", "DPE", "DR", "DT", "FI", "IH", "LH", "LR", "NC", "NFCF", "NR", "OM", "RFCF", "RL", "RLSE",
	"SI", "UAEX", "UC", "UDO", "UF", "UH", "UMSDR", "UO", "UPE", "UR", "URX", "UT",
}

func (f *Filtering) validate(v *resource.Validator) {
	if !toolkit.AtMost(v.Field("headers"), len(f.Headers), maxHeaders, "headers") {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		h := f.Headers[name]
		h.validate(v.Field("headers").Key(name), name)
	}
	if d := f.Duration; d != nil {
		v := v.Field("duration")
		v.Field("op").OneOf(d.Op, opEqual, opNot, opAtLeast, opAtMost)
		switch {
		case d.Value == nil:
			v.Field("value").Faultf(`the value is missing: give a duration like "500ms"`)
		case d.Value.Duration > math.MaxUint32*time.Millisecond:
			v.Field("value").Faultf("%s is too long: the maximum is %s", d.Value, math.MaxUint32*time.Millisecond)
		case d.Value.Duration%time.Millisecond != 0:
			v.Field("value").Faultf("%s is not a whole number of milliseconds", d.Value)
		}
	}
	for i, flag := range f.ResponseFlags {
		v.Field("responseFlags").Index(i).OneOf(flag, responseFlags[:]...)
	}
	for i, s := range f.GRPCStatus {
		if _, ok := accesslogv3.GrpcStatusFilter_Status_value[s]; !ok {
			v.Field("grpcStatus").Index(i).OneOf(s, slices.Sorted(maps.Keys(accesslogv3.GrpcStatusFilter_Status_value))...)
		}
	}
}

func (h *HeaderFilter) validate(v *resource.Validator, name string) {
	if !headerName(name) {
		v.Faultf("%q is not a request header: give lower-case letters, digits, and '-', or :status, :path, :method, "+
			":authority, or :scheme", toolkit.Clip(name))
	}
	if !v.Field("op").OneOf(h.Op, opEqual, opNot, opAtLeast, opAtMost, opPresent) {
		return
	}
	at := v.Field("value")
	n, err := strconv.ParseInt(h.Value, 10, 64)
	switch {
	case h.Op == opPresent && h.Value != "":
		at.Faultf("op present has no value: remove it")
	case h.Op == opPresent:
	case h.Value == "":
		at.Faultf("the value is missing: op %s requires one", h.Op)
	case name == statusHeader && (err != nil || n < 100 || n > 599):
		at.Faultf("%q is not an HTTP status: give 100 to 599", toolkit.Clip(h.Value))
	case (h.Op == opAtLeast || h.Op == opAtMost) && (err != nil || n == math.MaxInt64 || n == math.MinInt64):
		at.Faultf("%q is not a 64-bit integer, which op %s requires", toolkit.Clip(h.Value), h.Op)
	case strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		at.Faultf("%q contains control characters", toolkit.Clip(h.Value))
	}
}

// headerName accepts HTTP/2 header names (RFC 9113 section 8.2.1) and the pseudo-headers of
// requests.
func headerName(s string) bool {
	if strings.HasPrefix(s, ":") {
		return slices.Contains([]string{statusHeader, ":path", ":method", ":authority", ":scheme"}, s)
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// aboutRequests reports whether some condition applies only to requests.
func (f *Filtering) aboutRequests() bool {
	return f != nil && (len(f.Headers) > 0 || len(f.GRPCStatus) > 0)
}

// filters returns Envoy's conditions. For connections it ignores conditions on requests.
func (f *Filtering) filters(http bool) []*accesslogv3.AccessLogFilter {
	if f == nil {
		return nil
	}
	var out []*accesslogv3.AccessLogFilter
	if http {
		for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
			h := f.Headers[name]
			out = append(out, h.filter(name))
		}
	}
	if d := f.Duration; d != nil {
		out = append(out, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_DurationFilter{
			DurationFilter: &accesslogv3.DurationFilter{Comparison: comparison(d.Op, uint32(d.Value.Milliseconds()),
				"nearside.access_log.duration")},
		}})
	}
	if len(f.ResponseFlags) > 0 {
		out = append(out, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: f.ResponseFlags},
		}})
	}
	if http && len(f.GRPCStatus) > 0 {
		statuses := make([]accesslogv3.GrpcStatusFilter_Status, len(f.GRPCStatus))
		for i, s := range f.GRPCStatus {
			statuses[i] = accesslogv3.GrpcStatusFilter_Status(accesslogv3.GrpcStatusFilter_Status_value[s])
		}
		out = append(out, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_GrpcStatusFilter{
			GrpcStatusFilter: &accesslogv3.GrpcStatusFilter{Statuses: statuses},
		}})
	}
	return out
}

func (h *HeaderFilter) filter(name string) *accesslogv3.AccessLogFilter {
	n, _ := strconv.ParseInt(h.Value, 10, 64) // validated
	if name == statusHeader {
		op, value := h.Op, uint32(n)
		if op == opPresent {
			op, value = opAtLeast, 100 // a request without a response has status 0
		}
		return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
			StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: comparison(op, value, "nearside.access_log.status")},
		}}
	}
	m := toolkit.Header(name, toolkit.Exactly(h.Value))
	switch h.Op {
	case opPresent:
		m = toolkit.HeaderPresent(name, true)
	case opAtLeast:
		m.HeaderMatchSpecifier = rangeMatch(n, math.MaxInt64)
	case opAtMost:
		m.HeaderMatchSpecifier = rangeMatch(math.MinInt64, n+1) // the end is exclusive
	case opNot: // otherwise a missing header would match neither eq nor ne
		m.InvertMatch, m.TreatMissingHeaderAsEmpty = true, true
	}
	return headerFilter(m)
}

func rangeMatch(from, to int64) *routev3.HeaderMatcher_RangeMatch {
	return &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: from, End: to}}
}

func headerFilter(m *routev3.HeaderMatcher) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{
		HeaderFilter: &accesslogv3.HeaderFilter{Header: m},
	}}
}

// comparison returns a comparison with a runtime key for overriding the value, because some Envoy
// versions reject an empty key.
func comparison(op string, value uint32, key string) *accesslogv3.ComparisonFilter {
	ops := map[string]accesslogv3.ComparisonFilter_Op{
		opEqual: accesslogv3.ComparisonFilter_EQ, opNot: accesslogv3.ComparisonFilter_NE,
		opAtLeast: accesslogv3.ComparisonFilter_GE, opAtMost: accesslogv3.ComparisonFilter_LE,
	}
	return &accesslogv3.ComparisonFilter{Op: ops[op], Value: &corev3.RuntimeUInt32{DefaultValue: value, RuntimeKey: key}}
}

// all combines conditions with AND; nil if there are none.
func all(list ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	list = slices.DeleteFunc(slices.Clone(list), func(f *accesslogv3.AccessLogFilter) bool { return f == nil })
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: list},
	}}
}
