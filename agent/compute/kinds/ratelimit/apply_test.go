package ratelimit

import (
	"fmt"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// notes is a host that records warnings.
type notes struct {
	policy.Host
	list []string
}

func (n *notes) Warn(k resource.Key, format string, args ...any) {
	n.list = append(n.list, k.Name+": "+fmt.Sprintf(format, args...))
}

// TestTooManyHeaders merges policies that together set more headers than Envoy accepts. The excess
// is dropped and the limit remains.
func TestTooManyHeaders(t *testing.T) {
	list := make([]toolkit.HeaderValue, 9)
	for i := range list {
		list[i] = toolkit.HeaderValue{Name: fmt.Sprintf("x-%d", i), Value: "v"}
	}
	one := uint32(1)
	h := &HTTP{
		RequestRate: &Rate{Num: &one, Interval: &resource.Duration{Duration: minInterval * 2}},
		OnRateLimit: &OnRateLimit{Headers: &toolkit.HeaderValues{Set: list, Add: list[:2]}},
	}
	host := &notes{}
	rule := &policy.Rule{Origins: []policy.Origin{
		{Policy: &resource.Resource{Key: resource.Key{Name: "a"}}},
		{Policy: &resource.Resource{Key: resource.Key{Name: "b"}}},
	}}
	route := &routev3.Route{}
	ch := &draft.Chain{HTTP: &draft.HTTP{
		Filters: draft.PlainFilters,
		Routes:  &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{Routes: []*routev3.Route{route}}}},
	}}
	limitRequests(&policy.Context{Host: host}, rule, h, []*draft.Chain{ch, {}})

	var limit httplimitv3.LocalRateLimit
	if err := route.TypedPerFilterConfig[nameHTTPLimit].UnmarshalTo(&limit); err != nil {
		t.Fatal(err)
	}
	if n := len(limit.ResponseHeadersToAdd); n != MaxHeaders || limit.TokenBucket.MaxTokens != 1 {
		t.Errorf("%d headers, limit %v", n, limit.TokenBucket)
	}
	if len(host.list) != 2 || host.list[0][:3] != "a: " || host.list[1][:3] != "b: " {
		t.Errorf("warnings: %q", host.list)
	}
	if len(ch.HTTP.Filters) != 2 || ch.HTTP.Filters[1].Name != draft.NameRouter || len(draft.PlainFilters) != 1 {
		t.Errorf("filters: %v", ch.HTTP.Filters)
	}
}
