package match

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

const (
	faultURL     = HttpFilters + "fault.v3.HTTPFault"
	httpLimitURL = HttpFilters + "local_ratelimit.v3.LocalRateLimit"
	netLimitURL  = NetworkFilters + "local_ratelimit.v3.LocalRateLimit"
)

// Envoy's defaults.
const (
	routeTimeout   = 15 * time.Second
	streamIdle     = 5 * time.Minute
	connectTimeout = 5 * time.Second
	tcpIdle        = time.Hour
	limitStatus    = 429
)

// EffectKind is the kind of an effect on a connection or request.
type EffectKind string

// Kinds of effects.
const (
	EffectAbort     EffectKind = "abort"      // a fault: Envoy answers the request itself
	EffectDelay     EffectKind = "delay"      // a fault
	EffectBandwidth EffectKind = "bandwidth"  // a fault: the response is slowed down
	EffectRateLimit EffectKind = "rate-limit" // Envoy answers or closes what exceeds a rate
	EffectTimeout   EffectKind = "timeout"    // Envoy ends what takes too long
	EffectRetry     EffectKind = "retry"      // Envoy retries failures
)

// Effect is a possible effect on some of the connections or requests on the same path.
type Effect struct {
	Kind    EffectKind `json:"kind"`
	Percent float64    `json:"percent"`          // of the affected connections or requests
	Status  uint32     `json:"status,omitempty"` // of Envoy's response, or 0
	Text    string     `json:"text"`             // one clause, such as "10 % aborted with 503"
	Step    int        `json:"step"`             // index of the step that has the effect
}

// effect records an effect of the next step.
func (w *walk) effect(k EffectKind, percent float64, status uint32, format string, args ...any) {
	w.trace.Effects = append(w.trace.Effects,
		Effect{Kind: k, Percent: percent, Status: status, Text: fmt.Sprintf(format, args...), Step: len(w.trace.Steps)})
}

// percentOf returns a fraction in percent, at most 100.
func percentOf(f *typev3.FractionalPercent) float64 {
	return min(100, float64(f.GetNumerator())*100/float64(Denominator(f.GetDenominator())))
}

// PercentText formats a percentage without trailing zeros, such as "0.5 %".
func PercentText(p float64) string { return strconv.FormatFloat(p, 'g', -1, 64) + " %" }

// fault evaluates a fault filter. The route's config replaces that of the filter. The result is the
// end of the trace if every request is aborted, or nil.
func (w *walk) fault(step *Step, config, special *anypb.Any, s *stream) *Trace {
	m := &faultv3.HTTPFault{}
	if special.GetTypeUrl() == faultURL {
		config = special
		step.note("the route overrides its faults")
	}
	if config.UnmarshalTo(m) != nil {
		step.note("it cannot be decoded")
		w.step(*step)
		return nil
	}
	for _, h := range m.GetHeaders() {
		if c := compileHeader(h); !c.matches(s) {
			step.note("it is about requests whose header %s fits, and not about this one", clip.Value(h.GetName()))
			w.step(*step)
			return nil
		}
	}
	if c := m.GetUpstreamCluster(); c != "" {
		step.note("it is about requests to cluster %s", clip.Value(c))
	}
	if len(m.GetDownstreamNodes()) > 0 {
		step.note("it is about some nodes by x-envoy-downstream-service-node")
	}
	if d := m.GetDelay(); d != nil {
		p, fixed := percentOf(d.GetPercentage()), d.GetFixedDelay()
		switch {
		case fixed != nil && p > 0:
			w.effect(EffectDelay, p, 0, "%s delayed by %s", PercentText(p), timeText(fixed.AsDuration()))
		case fixed == nil:
			step.note("headers of the request may ask for a delay")
		}
	}
	if r := m.GetResponseRateLimit(); r.GetFixedLimit() != nil {
		if p := percentOf(r.GetPercentage()); p > 0 {
			w.effect(EffectBandwidth, p, 0, "%s answered at %d KiB/s", PercentText(p), r.GetFixedLimit().GetLimitKbps())
		}
	}
	abort := m.GetAbort()
	p, status := percentOf(abort.GetPercentage()), abort.GetHttpStatus()
	if abort.GetHeaderAbort() != nil {
		step.note("headers of the request may ask for an abort")
	}
	if status == 0 && abort.GetGrpcStatus() != 0 && p > 0 {
		w.effect(EffectAbort, p, 0, "%s aborted with gRPC status %d", PercentText(p), abort.GetGrpcStatus())
	}
	if status == 0 || p == 0 {
		w.step(*step)
		return nil
	}
	w.effect(EffectAbort, p, status, "%s aborted with %d", PercentText(p), status)
	w.step(*step)
	if p < 100 || m.GetUpstreamCluster() != "" || len(m.GetDownstreamNodes()) > 0 || m.GetMaxActiveFaults() != nil {
		return nil
	}
	w.trace.Status = status
	return w.end(Answered, LevelHTTPFilter, "FI", "a fault filter aborts every request with %d", status)
}

// httpLimit evaluates a local rate limit for requests.
func (w *walk) httpLimit(step *Step, config, special *anypb.Any) {
	m := &httplimitv3.LocalRateLimit{}
	if special.GetTypeUrl() == httpLimitURL {
		config = special
		step.note("the route has a limit of its own")
	}
	err := config.UnmarshalTo(m)
	// Envoy draws both fractions for each request. Without them the filter does nothing.
	p := percentOf(m.GetFilterEnabled().GetDefaultValue()) * percentOf(m.GetFilterEnforced().GetDefaultValue()) / 100
	switch {
	case err != nil:
		step.note("it cannot be decoded")
	case p == 0 || m.GetTokenBucket() == nil:
		step.note("it limits nothing")
	default:
		status := uint32(limitStatus)
		if c := uint32(m.GetStatus().GetCode()); c >= 400 { // Envoy ignores lower statuses
			status = c
		}
		w.effect(EffectRateLimit, p, status, "%s, more answered with %d", rateText(m.GetTokenBucket(), "requests"), status)
		if len(m.GetDescriptors()) > 0 {
			step.note("its descriptors are not evaluated here")
		}
	}
	w.step(*step)
}

// netLimit evaluates a local rate limit for connections.
func (w *walk) netLimit(step *Step, config *anypb.Any) {
	m := &netlimitv3.LocalRateLimit{}
	ok := config.UnmarshalTo(m) == nil && m.GetTokenBucket() != nil
	if on := m.GetRuntimeEnabled(); ok && (on == nil || on.GetDefaultValue().GetValue()) {
		w.effect(EffectRateLimit, 100, 0, "%s, more closed", rateText(m.GetTokenBucket(), "connections"))
	}
	w.step(*step)
}

func rateText(b *typev3.TokenBucket, what string) string {
	each := uint32(1)
	if t := b.GetTokensPerFill(); t != nil {
		each = t.GetValue()
	}
	text := fmt.Sprintf("at most %d %s in %s", each, what, timeText(b.GetFillInterval().AsDuration()))
	if b.GetMaxTokens() > each {
		text += fmt.Sprintf(", %d at once", b.GetMaxTokens())
	}
	return text
}

// limits records the timeouts and retries of a forwarded request as effects of the route's step,
// the last one of its level.
func (w *walk) limits(m *hcmv3.HttpConnectionManager, o overrides, upgrade string) {
	at := 0
	for i := range w.trace.Steps {
		if w.trace.Steps[i].Level == LevelRoute {
			at = i
		}
	}
	from := len(w.trace.Effects)
	route := o.route.GetRoute()
	if upgrade == "" { // the route's timeout starts at the end of the request, which an upgraded stream does not have
		if d := durationOr(route.GetTimeout(), routeTimeout); d > 0 {
			w.effect(EffectTimeout, 100, 504, "a request may take %s, then 504", timeText(d))
		}
	}
	idle := durationOr(m.GetStreamIdleTimeout(), streamIdle)
	if d := route.GetIdleTimeout(); d != nil {
		idle = d.AsDuration()
	}
	if idle > 0 {
		w.effect(EffectTimeout, 100, 0, "a request on which nothing moves for %s ends", timeText(idle))
	}
	retry := route.GetRetryPolicy()
	if retry == nil {
		retry = o.host.GetRetryPolicy()
	}
	if retry != nil && retry.GetRetryOn() != "" {
		w.effect(EffectRetry, 100, 0, "%s", retryText(retry))
	}
	for i := range w.trace.Effects[from:] {
		w.trace.Effects[from+i].Step = at
	}
	slices.SortStableFunc(w.trace.Effects, func(a, b Effect) int { return a.Step - b.Step })
}

func retryText(r *routev3.RetryPolicy) string {
	n := uint32(1)
	if v := r.GetNumRetries(); v != nil {
		n = v.GetValue()
	}
	text := fmt.Sprintf("at most %d retries on %s", n, clip.Value(r.GetRetryOn()))
	for i, c := range r.GetRetriableStatusCodes() {
		if i == maxListed {
			text += " and more"
			break
		}
		text += fmt.Sprintf("%c%d", " ,"[min(i, 1)], c)
	}
	if d := r.GetPerTryTimeout(); d.AsDuration() > 0 {
		text += fmt.Sprintf(", each try within %s", timeText(d.AsDuration()))
	}
	return text
}

// timeText formats a duration without trailing zero units: 1h instead of 1h0m0s.
func timeText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func durationOr(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.AsDuration()
}
