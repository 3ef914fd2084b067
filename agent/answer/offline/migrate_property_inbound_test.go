package offline_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"google.golang.org/protobuf/encoding/protojson"
)

func TestMigratedPermissions(t *testing.T) {
	property(t, "TrafficPermission", true, func(r *rand.Rand) []string {
		var out []string
		for i := range 1 + r.IntN(5) {
			out = append(out, legacy(r, i, "TrafficPermission", true, ""))
		}
		return out
	}, func(t *testing.T, p *generate.Proxy) map[string]string {
		out := map[string]string{"compared": p.Name}
		for _, l := range listenersOf(t, p) {
			if !strings.HasPrefix(l.Name, "inbound:") {
				continue
			}
			for _, service := range []string{"web", "api", "rpc", "db", "queue", "edge", "stranger"} {
				for _, team := range []string{"", "a", "b"} {
					uris := []string{"spiffe://default/" + service}
					if team != "" {
						uris = append(uris, "kuma://team/"+team)
					}
					out[l.Name+" "+service+" "+team] = fmt.Sprint(admits(t, l, uris))
				}
			}
			out[l.Name+" web and db"] = fmt.Sprint(admits(t, l, []string{"spiffe://default/web", "spiffe://default/db"}))
		}
		return out
	})
}

// admits reports whether the RBAC filters of a listener admit a client with a certificate for the
// URIs.
func admits(t *testing.T, l *listenerv3.Listener, uris []string) bool {
	t.Helper()
	check := func(r *rbacv3.RBAC) bool {
		for _, p := range r.GetPolicies() {
			if slices.ContainsFunc(p.Principals, func(x *rbacv3.Principal) bool { return fits(t, x, uris) }) {
				return true
			}
		}
		return false
	}
	found, ok := 0, true
	for _, f := range l.FilterChains[0].Filters {
		switch m := anyOf(t, f.GetTypedConfig()).(type) {
		case *netrbacv3.RBAC:
			found, ok = found+1, ok && check(m.Rules)
		case *hcmv3.HttpConnectionManager:
			for _, h := range m.HttpFilters {
				if g, is := anyOf(t, h.GetTypedConfig()).(*httprbacv3.RBAC); is {
					found, ok = found+1, ok && check(g.Rules)
				}
			}
		}
	}
	if found != 1 {
		t.Fatalf("%s has %d RBAC filters", l.Name, found)
	}
	return ok
}

func fits(t *testing.T, p *rbacv3.Principal, uris []string) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return id.Any
	case *rbacv3.Principal_Authenticated_:
		return slices.Contains(uris, id.Authenticated.GetPrincipalName().GetExact())
	case *rbacv3.Principal_NotId:
		return !fits(t, id.NotId, uris)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(x *rbacv3.Principal) bool { return !fits(t, x, uris) })
	}
	t.Fatalf("unexpected principal %T", p.Identifier)
	return false
}

func TestMigratedFaults(t *testing.T) {
	property(t, "FaultInjection", false, func(r *rand.Rand) []string {
		var out []string
		for i := range 1 + r.IntN(4) {
			out = append(out, legacy(r, i, "FaultInjection", true, fields(r,
				fmt.Sprintf(`"abort":{"httpStatus":%d,"percentage":%d}`, 400+r.IntN(200), r.IntN(101)),
				fmt.Sprintf(`"delay":{%s,"percentage":%d.5}`, span(r, "value"), r.IntN(100)),
				fmt.Sprintf(`"responseBandwidth":{"limit":"%d %s","percentage":1}`, 1+r.IntN(9), pick(r, "kbps", "mbps", "Gbps")))))
		}
		return out
	}, func(t *testing.T, p *generate.Proxy) map[string]string {
		out := map[string]string{"compared": p.Name}
		for _, l := range listenersOf(t, p) {
			if !strings.HasPrefix(l.Name, "inbound:") {
				continue
			}
			for _, service := range []string{"web", "api", "rpc", "db", "queue", "stranger"} {
				for _, team := range []string{"", "a", "b"} {
					tags := map[string][]string{"kuma.io/service": {service}, "kuma.io/protocol": {"http"}}
					if team != "" {
						tags["team"] = []string{team}
					}
					out[l.Name+" "+service+" "+team] = faults(t, l, mesh.TagString(tags))
				}
			}
		}
		return out
	})
}

// faults lists the faults that may apply to a request with the tags, in order.
func faults(t *testing.T, l *listenerv3.Listener, tags string) string {
	var out []string
	for _, f := range l.FilterChains[0].Filters {
		m, ok := anyOf(t, f.GetTypedConfig()).(*hcmv3.HttpConnectionManager)
		if !ok {
			continue
		}
		for _, h := range m.HttpFilters {
			fault, ok := anyOf(t, h.GetTypedConfig()).(*faultv3.HTTPFault)
			if !ok ||
				slices.ContainsFunc(fault.Headers, func(x *routev3.HeaderMatcher) bool { return !headerFits(t, x, tags) }) {
				continue
			}
			fault.Headers = nil
			out = append(out, protojson.MarshalOptions{}.Format(fault))
		}
	}
	return strings.ReplaceAll(strings.Join(out, " "), "  ", " ")
}

func headerFits(t *testing.T, m *routev3.HeaderMatcher, tags string) bool {
	pattern := m.GetStringMatch().GetSafeRegex().GetRegex()
	if m.Name != "x-kuma-tags" || pattern == "" {
		t.Fatalf("unexpected matcher %v", m)
	}
	return regexp.MustCompile("^(?:"+pattern+")$").MatchString(tags) != m.InvertMatch
}
