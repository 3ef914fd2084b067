// Package retry implements MeshRetry: which requests a proxy retries, how often, and after which
// delay, and how often it tries to connect.
//
// MeshRetry policies affect the routes of HTTP and gRPC outbounds and the TCP proxies of other
// outbounds. Without conditions, Kuma's defaults apply.
package retry

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	omithostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/omit_host_metadata/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	prioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin.
const Kind = "MeshRetry"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshretries", "mr", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			To:        toolkit.Destinations("MeshHTTPRoute"),
			NoItems:   true,
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     func(p *resource.Policy, v *resource.Validator) { toolkit.RouteItems(p, v, (*Conf).checkRoute) },
		})},
		Legacy:  legacy,
		Shapes:  []match.Level{match.LevelRoute},
		Effects: []match.EffectKind{match.EffectRetry},
		Apply:   apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	memo := map[*Conf]*Retries{}
	of := func(r *policy.Rule) *Retries {
		return toolkit.Once(memo, toolkit.Conf[Conf](r), func(conf *Conf) *Retries {
			return Of(conf, func(format string, args ...any) { toolkit.WarnStrongest(c, r, format, args...) })
		})
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		all, protocol := of(k.Outbound(l.Service)), mesh.Protocol(l.Service.Protocol)
		for _, ch := range l.Chains {
			all.Put(ch, protocol, func(r *routev3.Route) *Retries {
				return of(k.Route(l.Service, r.GetName(), ch.HTTP.Origins[r.GetName()]))
			})
		}
	}
}

// Put sets the retries of a chain. own, when set, returns the retries of one route, or nil for
// none. Put may be called on nil.
func (r *Retries) Put(ch *draft.Chain, p mesh.Protocol, ofRoute func(*routev3.Route) *Retries) {
	switch {
	case ch.HTTP != nil:
		for route := range toolkit.Routes(ch.HTTP) {
			if ofRoute == nil || !ofRoute(route).put(route.GetRoute(), p) {
				r.put(route.GetRoute(), p)
			}
		}
	case ch.TCP != nil && r != nil && r.conf.TCP != nil && r.conf.TCP.MaxConnectAttempt != nil:
		ch.TCP.MaxConnectAttempts = toolkit.UInt32(r.conf.TCP.MaxConnectAttempt)
	}
}

// Retries is a conf converted to Envoy's messages, which routes share and must not modify. A nil
// Retries retries nothing.
type Retries struct {
	conf       *Conf
	http, grpc *routev3.RetryPolicy
}

// Of converts a conf. warn reports values that had to be changed.
func Of(conf *Conf, warn func(format string, args ...any)) *Retries {
	out := &Retries{conf: conf}
	if conf.HTTP != nil {
		out.http = conf.HTTP.policy(warn)
	}
	if conf.GRPC != nil {
		out.grpc = conf.GRPC.policy(warn)
	}
	return out
}

// put sets the retry policy of a route, which is nil if retries are disabled. It returns false if
// the conf does not configure the protocol.
func (r *Retries) put(action *routev3.RouteAction, p mesh.Protocol) bool {
	switch {
	case r == nil || p == mesh.ProtocolGRPC && r.conf.GRPC == nil || p != mesh.ProtocolGRPC && r.conf.HTTP == nil:
		return false
	case action == nil:
	case p == mesh.ProtocolGRPC:
		action.RetryPolicy = r.grpc
	default:
		action.RetryPolicy = r.http
	}
	return true
}

// Names of Envoy's extensions.
const (
	namePreviousHosts = "envoy.retry_host_predicates.previous_hosts"
	nameOmitHosts     = "envoy.retry_host_predicates.omit_host_metadata"
	namePriorities    = "envoy.retry_priorities.previous_priorities"
)

// Predicates of a conf.
const (
	omitPreviousHosts      = "OmitPreviousHosts"
	omitHostsWithTags      = "OmitHostsWithTags"
	omitPreviousPriorities = "OmitPreviousPriorities"
)

// policyOf returns the settings common to GRPC and HTTP, or nil if retries are disabled. otherwise
// is the condition if none is set. warn reports values that had to be changed.
func (r *Requests) policyOf(otherwise string, c conditions,
	warn func(format string, args ...any)) *routev3.RetryPolicy {
	if toolkit.Or(r.NumRetries, 1) == 0 {
		return nil
	}
	words := c.words
	if len(words) == 0 && len(c.statuses) == 0 {
		words = []string{otherwise}
	}
	if len(c.statuses) > 0 {
		words = append(slices.Clip(words), statusCodes)
	}
	out := &routev3.RetryPolicy{
		RetryOn: strings.Join(words, ","), RetriableStatusCodes: c.statuses, PerTryTimeout: toolkit.Duration(r.PerTryTimeout),
		NumRetries: toolkit.UInt32(r.NumRetries),
	}
	if b := r.BackOff; b != nil {
		base, limit := b.base(), toolkit.Duration(b.MaxInterval)
		if limit != nil && limit.AsDuration() < base { // possible in merged policies
			warn("backOff.maxInterval of %s is shorter than the merged baseInterval of %s; both are set to %s",
				b.MaxInterval, base, base)
			limit = durationpb.New(base)
		}
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(base), MaxInterval: limit}
	}
	if b := r.RateLimitedBackOff; b != nil {
		limited := &routev3.RetryPolicy_RateLimitedRetryBackOff{MaxInterval: toolkit.Duration(b.MaxInterval)}
		for _, h := range b.ResetHeaders {
			format := routev3.RetryPolicy_SECONDS
			if h.Format == "UnixTimestamp" {
				format = routev3.RetryPolicy_UNIX_TIMESTAMP
			}
			limited.ResetHeaders = append(limited.ResetHeaders, &routev3.RetryPolicy_ResetHeader{Name: h.Name, Format: format})
		}
		out.RateLimitedRetryBackOff = limited
	}
	return out
}

func (g *GRPC) policy(warn func(format string, args ...any)) *routev3.RetryPolicy {
	c, _ := grpcConditions(g.RetryOn)
	return g.policyOf(defaultGRPC, c, warn)
}

func (h *HTTP) policy(warn func(format string, args ...any)) *routev3.RetryPolicy {
	c, _ := httpConditions(h.RetryOn)
	out := h.policyOf(defaultHTTP, c, warn)
	if out == nil {
		return nil
	}
	for _, m := range c.methods {
		out.RetriableRequestHeaders = append(out.RetriableRequestHeaders, toolkit.Header(":method", toolkit.Exactly(m)))
	}
	out.RetriableRequestHeaders = append(out.RetriableRequestHeaders, toolkit.Matchers(h.RetriableRequestHeaders)...)
	if len(h.RetriableResponseHeaders) > 0 {
		out.RetryOn += "," + responseHeaders // Envoy requires it for RetriableHeaders
		out.RetriableHeaders = toolkit.Matchers(h.RetriableResponseHeaders)
	}
	for i := range h.HostSelection {
		if err := h.HostSelection[i].put(out); err != nil {
			warn("hostSelection[%d] has no effect: %v", i, err)
		}
	}
	out.HostSelectionRetryMaxAttempts = int64(toolkit.Or(h.HostSelectionMaxAttempts, 0))
	return out
}

// put adds the predicate to a retry policy.
func (p *Predicate) put(out *routev3.RetryPolicy) error {
	e := draft.Extension{}
	switch p.Predicate {
	case omitPreviousHosts:
		e.Name, e.Message = namePreviousHosts, &previoushostsv3.PreviousHostsPredicate{}
	case omitHostsWithTags:
		tags := make(map[string]*structpb.Value, len(p.Tags))
		for k, v := range p.Tags {
			tags[k] = structpb.NewStringValue(v)
		}
		e.Name, e.Message = nameOmitHosts, &omithostsv3.OmitHostMetadataConfig{MetadataMatch: &corev3.Metadata{
			FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: tags}},
		}}
	case omitPreviousPriorities:
		e.Name, e.Message = namePriorities,
			&prioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: toolkit.Or(p.UpdateFrequency, 0)}
	}
	a, err := e.Pack()
	switch {
	case err != nil:
		return err
	case p.Predicate == omitPreviousPriorities:
		out.RetryPriority = &routev3.RetryPolicy_RetryPriority{
			Name: e.Name, ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: a},
		}
	case a != nil:
		out.RetryHostPredicate = append(out.RetryHostPredicate, &routev3.RetryPolicy_RetryHostPredicate{
			Name: e.Name, ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: a},
		})
	}
	return nil
}

// Default conditions.
const (
	defaultHTTP = "gateway-error,connect-failure,refused-stream"
	defaultGRPC = "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable"
)

// Envoy's keywords that refer to separate fields.
const (
	statusCodes     = "retriable-status-codes"
	responseHeaders = "retriable-headers"
)

// methodPrefix is the prefix of the keywords for methods.
const methodPrefix = "HttpMethod"

// httpWords maps Kuma's keywords to Envoy's.
func httpWords() map[string]string {
	return map[string]string{
		"5xx":                     "5xx",
		"GatewayError":            "gateway-error",
		"Reset":                   "reset",
		"Retriable4xx":            "retriable-4xx",
		"ConnectFailure":          "connect-failure",
		"EnvoyRatelimited":        "envoy-ratelimited",
		"RefusedStream":           "refused-stream",
		"Http3PostConnectFailure": "http3-post-connect-failure",
	}
}

// grpcWords maps Kuma's keywords to Envoy's.
func grpcWords() map[string]string {
	return map[string]string{
		"Canceled":          "cancelled",
		"DeadlineExceeded":  "deadline-exceeded",
		"Internal":          "internal",
		"ResourceExhausted": "resource-exhausted",
		"Unavailable":       "unavailable",
	}
}

func methods() []string {
	return []string{"Connect", "Delete", "Get", "Head", "Options", "Patch", "Post", "Put", "Trace"}
}

// conditions are the conditions of a policy in Envoy's terms.
type conditions struct {
	words    []string
	statuses []uint32
	methods  []string
}

// httpConditions parses conditions. bad is the index of the first invalid one, or -1.
func httpConditions(list []Condition) (out conditions, bad int) {
	bad = slices.IndexFunc(list, func(c Condition) bool {
		method, isMethod := strings.CutPrefix(c.text(), methodPrefix)
		status, isStatus := parseStatus(c.text())
		switch word := httpWords()[c.text()]; {
		case word != "":
			out.words = append(out.words, word)
		case isMethod && slices.Contains(methods(), method):
			out.methods = append(out.methods, strings.ToUpper(method))
		case isStatus:
			out.statuses = append(out.statuses, status)
		default:
			return true
		}
		return false
	})
	return out, bad
}

// grpcConditions is like httpConditions for gRPC.
func grpcConditions(list []Condition) (out conditions, bad int) {
	for _, c := range list {
		out.words = append(out.words, grpcWords()[c.text()])
	}
	return out, slices.Index(out.words, "")
}

// parseStatus parses an HTTP status of three digits.
func parseStatus(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && len(s) == 3 && n >= 100 && n <= 599
}

// httpChoices and grpcChoices list the valid conditions for messages.
func httpChoices() string {
	return strings.Join(slices.Sorted(maps.Keys(httpWords())), ", ") + ", " + methodPrefix + " with " +
		strings.Join(methods(), ", ") + ", or an HTTP status of 100 to 599"
}

func grpcChoices() string { return strings.Join(slices.Sorted(maps.Keys(grpcWords())), ", ") }
