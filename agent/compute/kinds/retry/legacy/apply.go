// Package legacy implements Retry, which MeshRetry replaces: its conf, effect, and migration.
//
// Retry policies affect only outbounds. One policy applies to each outbound; they are not merged.
package legacy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/retry"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "Retry"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return toolkit.LegacyOutbound[Conf](kind, "retries", retry.Kind, apply, migrate)
}

func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	memo := map[*Conf]*retry.Retries{}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		if l.Service.Kind != mesh.KindTag || toolkit.SupersedingRoute(c.Rules, l.Service) != nil {
			continue
		}
		p := c.Rules.LegacyOutbound(kind, l.Service.Name)
		of := toolkit.Once(memo, toolkit.LegacyConf[Conf](p), func(conf *Conf) *retry.Retries {
			return retry.Of(conf.converted(), func(format string, args ...any) { c.Host.Warn(p.Key, format, args...) })
		})
		for _, ch := range l.Chains {
			of.Put(ch, mesh.Protocol(l.Service.Protocol), nil)
		}
	}
}

// Conf is the conf of a Retry, by the protocol of the service.
type Conf struct {
	HTTP *HTTP `json:"http,omitempty"` // HTTP and HTTP/2
	TCP  *TCP  `json:"tcp,omitempty"`
	GRPC *GRPC `json:"grpc,omitempty"`
}

// TCP configures connections.
type TCP struct {
	MaxConnectAttempts *uint32 `json:"maxConnectAttempts,omitempty" check:"atLeastOne"`
}

// Requests holds the fields that HTTP and GRPC have in common.
type Requests struct {
	NumRetries    *uint32            `json:"numRetries,omitempty"` // Default 1
	PerTryTimeout *resource.Duration `json:"perTryTimeout,omitempty" check:"positive"`
	BackOff       *retry.BackOff     `json:"backOff,omitempty"`
	RetryOn       []string           `json:"retryOn,omitempty"` // one is sufficient
}

// HTTP configures requests.
type HTTP struct {
	Requests
	RetriableStatusCodes []uint32 `json:"retriableStatusCodes,omitempty"` // statuses to retry, in addition to RetryOn
	RetriableMethods     []string `json:"retriableMethods,omitempty"`     // methods that may be retried
}

// GRPC configures gRPC calls.
type GRPC struct {
	Requests
}

// Limits of a conf.
const (
	maxConditions = 16
	maxStatuses   = 32
)

// httpWords maps the keywords of a Retry to those of a MeshRetry; "" if the keyword only enables a
// list.
func httpWords() map[string]string {
	return map[string]string{
		"all_5xx": "5xx", "gateway_error": "GatewayError", "reset": "Reset", "connect_failure": "ConnectFailure",
		"envoy_ratelimited": "EnvoyRatelimited", "retriable_4xx": "Retriable4xx", "refused_stream": "RefusedStream",
		"http3_post_connect_failure": "Http3PostConnectFailure", "retriable_status_codes": "", "retriable_headers": "",
	}
}

func grpcWords() map[string]string {
	return map[string]string{
		"cancelled": "Canceled", "deadline_exceeded": "DeadlineExceeded", "internal": "Internal",
		"resource_exhausted": "ResourceExhausted", "unavailable": "Unavailable",
	}
}

// Sorted keywords for messages.
const (
	httpChoices = "all_5xx connect_failure envoy_ratelimited gateway_error http3_post_connect_failure refused_stream " +
		"reset retriable_4xx retriable_headers retriable_status_codes"
	grpcChoices = "cancelled deadline_exceeded internal resource_exhausted unavailable"
	methods     = "CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE"
)

// Validate checks that the conf is not empty and that its keywords are valid.
func (c *Conf) Validate(v *resource.Validator) {
	if c.TCP == nil && c.HTTP == nil && c.GRPC == nil {
		v.Faultf("the conf is empty: give at least one of http, grpc, tcp")
	}
	if c.TCP != nil && c.TCP.MaxConnectAttempts == nil {
		v.Field("tcp").Faultf("no field is set: give maxConnectAttempts")
	}
	if h := c.HTTP; h != nil {
		v := v.Field("http")
		if h.empty() && len(h.RetriableStatusCodes) == 0 && len(h.RetriableMethods) == 0 {
			v.Faultf("no field is set: give numRetries, perTryTimeout, backOff, retryOn, " +
				"retriableStatusCodes or retriableMethods")
		}
		h.validate(v, httpChoices)
		if at := v.Field("retriableStatusCodes"); toolkit.AtMost(at, len(h.RetriableStatusCodes), maxStatuses, "statuses") {
			for i, s := range h.RetriableStatusCodes {
				if s < 100 || s > 599 {
					at.Index(i).Faultf("%d is not an HTTP status: give 100 to 599", s)
				}
			}
		}
		words(v.Field("retriableMethods"), h.RetriableMethods, methods)
	}
	if g := c.GRPC; g != nil {
		if g.empty() {
			v.Field("grpc").Faultf("no field is set: give numRetries, perTryTimeout, backOff or retryOn")
		}
		g.validate(v.Field("grpc"), grpcChoices)
	}
}

func (r *Requests) empty() bool {
	return r.NumRetries == nil && r.PerTryTimeout == nil && r.BackOff == nil && len(r.RetryOn) == 0
}

func (r *Requests) validate(v *resource.Validator, choices string) {
	r.BackOff.Check(v.Field("backOff"))
	words(v.Field("retryOn"), r.RetryOn, choices)
}

func words(v *resource.Validator, list []string, choices string) {
	if toolkit.AtMost(v, len(list), maxConditions, "words") {
		for i, s := range list {
			v.Index(i).OneOf(s, strings.Fields(choices)...)
		}
	}
}

// converted returns the conf of a MeshRetry with the same values.
func (c *Conf) converted() *retry.Conf {
	out := &retry.Conf{}
	if c.TCP != nil {
		out.TCP = &retry.TCP{MaxConnectAttempt: c.TCP.MaxConnectAttempts}
	}
	if c.HTTP != nil {
		out.HTTP = &retry.HTTP{Requests: c.HTTP.converted(c.HTTP.conditions())}
		if len(c.HTTP.RetryOn) > 0 && c.HTTP.never() {
			out.HTTP.NumRetries = new(uint32(0))
		}
	}
	if c.GRPC != nil {
		out.GRPC = &retry.GRPC{Requests: c.GRPC.converted(translated(c.GRPC.RetryOn, grpcWords()))}
	}
	return out
}

func (r *Requests) converted(conditions []string) retry.Requests {
	out := retry.Requests{NumRetries: r.NumRetries, PerTryTimeout: r.PerTryTimeout, BackOff: r.BackOff}
	if len(conditions) > 0 {
		out.RetryOn = retry.Conditions(conditions...)
	}
	return out
}

// defaults returns the conditions of HTTP that apply if none are set.
func defaults() []string { return []string{"GatewayError", "ConnectFailure", "RefusedStream"} }

// conditions returns the keywords of MeshRetry, which include statuses and methods.
func (h *HTTP) conditions() []string {
	out := translated(h.RetryOn, httpWords())
	if len(h.RetryOn) == 0 && len(h.RetriableStatusCodes) > 0 {
		out = defaults() // MeshRetry has defaults only without statuses
	}
	for _, s := range h.RetriableStatusCodes {
		out = append(out, strconv.FormatUint(uint64(s), 10))
	}
	for _, m := range h.RetriableMethods {
		out = append(out, "HttpMethod"+m[:1]+strings.ToLower(m[1:]))
	}
	return out
}

// never reports whether all conditions refer to empty lists.
func (h *HTTP) never() bool {
	return len(h.RetriableStatusCodes) == 0 &&
		!slices.ContainsFunc(h.RetryOn, func(s string) bool { return httpWords()[s] != "" })
}

func translated(list []string, words map[string]string) []string {
	var out []string
	for _, s := range list {
		if w := words[s]; w != "" {
			out = append(out, w)
		}
	}
	return out
}
