package retry

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	omithostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/omit_host_metadata/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	prioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Names of Envoy's extensions.
const (
	namePreviousHosts = "envoy.retry_host_predicates.previous_hosts"
	nameOmitHosts     = "envoy.retry_host_predicates.omit_host_metadata"
	namePriorities    = "envoy.retry_priorities.previous_priorities"
)

// Words of a conf.
const (
	matchExact   = "Exact"
	matchPrefix  = "Prefix"
	matchRegex   = "RegularExpression"
	matchPresent = "Present"
	matchAbsent  = "Absent"

	omitPreviousHosts      = "OmitPreviousHosts"
	omitHostsWithTags      = "OmitHostsWithTags"
	omitPreviousPriorities = "OmitPreviousPriorities"
)

// methodHeader is the pseudo-header of the method (RFC 9113 section 8.3.1).
const methodHeader = ":method"

// policyOf makes what GRPC and HTTP have in common, with other conditions where none are given; nil when the conf wants
// no retry. warn is told of what had to be changed.
func (r *Requests) policyOf(otherwise string, c conditions, warn func(format string, args ...any)) *routev3.RetryPolicy {
	if r.NumRetries != nil && *r.NumRetries == 0 {
		return nil
	}
	words := c.words
	if len(words) == 0 {
		words = []string{otherwise}
	}
	if len(c.statuses) > 0 {
		words = append(slices.Clip(words), statusCodes)
	}
	out := &routev3.RetryPolicy{
		RetryOn: strings.Join(words, ","), RetriableStatusCodes: c.statuses, PerTryTimeout: span(r.PerTryTimeout),
	}
	if r.NumRetries != nil {
		out.NumRetries = wrapperspb.UInt32(*r.NumRetries)
	}
	if b := r.BackOff; b != nil {
		base, longest := b.base(), span(b.MaxInterval)
		if longest != nil && longest.AsDuration() < base { // possible where policies are merged
			warn("backOff.maxInterval of %s is shorter than the baseInterval of %s that it is merged with: %s is in force for both", b.MaxInterval, base, base)
			longest = durationpb.New(base)
		}
		out.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(base), MaxInterval: longest}
	}
	if b := r.RateLimitedBackOff; b != nil {
		limited := &routev3.RetryPolicy_RateLimitedRetryBackOff{MaxInterval: span(b.MaxInterval)}
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
		out.RetriableRequestHeaders = append(out.RetriableRequestHeaders, (&HeaderMatch{Name: methodHeader, Value: m}).matcher())
	}
	for i := range h.RetriableRequestHeaders {
		out.RetriableRequestHeaders = append(out.RetriableRequestHeaders, h.RetriableRequestHeaders[i].matcher())
	}
	if len(h.RetriableResponseHeaders) > 0 {
		out.RetryOn += "," + responseHeaders // without it Envoy does not look at them
	}
	for i := range h.RetriableResponseHeaders {
		out.RetriableHeaders = append(out.RetriableHeaders, h.RetriableResponseHeaders[i].matcher())
	}
	for i := range h.HostSelection {
		if err := h.HostSelection[i].put(out); err != nil {
			warn("hostSelection[%d]: %v: it has no effect", i, err)
		}
	}
	if h.HostSelectionMaxAttempts != nil {
		out.HostSelectionRetryMaxAttempts = int64(*h.HostSelectionMaxAttempts)
	}
	return out
}

func (h *HeaderMatch) matcher() *routev3.HeaderMatcher {
	out := &routev3.HeaderMatcher{Name: h.Name}
	s := &matcherv3.StringMatcher{}
	switch h.Type {
	case matchPresent, matchAbsent:
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: h.Type == matchPresent}
		return out
	case matchPrefix:
		s.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: h.Value}
	case matchRegex:
		s.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: h.Value}}
	default:
		s.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: h.Value}
	}
	out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	return out
}

// put adds the predicate to a policy.
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
		m := &prioritiesv3.PreviousPrioritiesConfig{}
		if p.UpdateFrequency != nil {
			m.UpdateFrequency = *p.UpdateFrequency
		}
		e.Name, e.Message = namePriorities, m
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

func span(d *resource.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(d.Duration)
}
