package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestInterceptRules reads the rules of intercept.watch.
func TestInterceptRules(t *testing.T) {
	cfg, _, faults := agenttest.LoadConfig(t, `vips: {tag: [250.0.0.0/8]}
intercept:
  watch:
  - {name: pods, cgroup: "kubepods.slice/*"}
  - name: proxies
    netns: /run/netns/*
    dnsPort: 0
    outbound: 15001
    outboundVirtual: 15002
    inbound: 15006
    envoyUsers: [5678, "7"]
    excludeUsers: [9]
    excludeOutboundPorts: [22]
    excludeInboundPorts: ["22", 8080]
    excludeOutboundCIDRs: [10.0.0.0/8, "fd00::1"]
    excludeInboundCIDRs: [192.168.0.0/16]
`, nil, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	prefix := netip.MustParsePrefix
	want := []intercept.Rule{
		{Name: "pods", Cgroup: "kubepods.slice/*", Spec: intercept.Spec{DNSPort: 15053}},
		{Name: "proxies", Netns: "/run/netns/*", Spec: intercept.Spec{Outbound: 15001, Virtual: 15002, Inbound: 15006,
			VirtualCIDRs: []netip.Prefix{prefix("241.0.0.0/8"), prefix("242.0.0.0/8"), prefix("243.0.0.0/8"),
				prefix("250.0.0.0/8"), prefix("fd00:fd01::/64"), prefix("fd00:fd02::/64"), prefix("fd00:fd03::/64")},
			EnvoyUsers: []uint32{7, 5678}, ExcludeUsers: []uint32{9}, ExcludeOutboundPorts: []uint16{22},
			ExcludeInboundPorts:  []uint16{22, 8080},
			ExcludeOutboundCIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::1/128")},
			ExcludeInboundCIDRs:  []netip.Prefix{prefix("192.168.0.0/16")}}},
	}
	if d := cmp.Diff(want, cfg.InterceptRules(), cmpopts.EquateComparable(netip.Prefix{}),
		cmpopts.EquateEmpty()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestInterceptRuleFaults: a rule that would select everything or redirect wrongly is rejected.
func TestInterceptRuleFaults(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{"{cgroup: a}", "intercept.watch[0].name: is required"},
		{"{name: a}", "intercept.watch[0]: cgroup: set either cgroup or netns"},
		{"{name: a, cgroup: '*'}", "selects all processes of the host"},
		{"{name: a, netns: 'run/*'}", "not a clean absolute path"},
		{"{name: a, netns: '/run/*', dnsPort: 53}", "dnsPort: 53 is the redirected port"},
		{"{name: a, netns: '/run/*', dnsPort: 0}", "nothing is redirected: set dnsPort, or add outbound or inbound"},
		{"{name: a, netns: '/run/*', outbound: 15001}", "envoyUsers is required with outbound"},
		{"{name: a, netns: '/run/*', outbound: 15001, envoyUsers: [app]}", `"app" is not a UID`},
		{"{name: a, netns: '/run/*', inbound: 1, excludeInboundPorts: [0]}", `"0" is not a port`},
		{"{name: a, netns: '/run/*', inbound: 1, excludeInboundCIDRs: [x]}", `"x" is not a network`},
		{"{name: a, netns: '/run/*'}, {name: a, netns: '/x'}", "is also in item [0]"},
	} {
		_, _, faults := agenttest.LoadConfig(t, "intercept: {watch: ["+c.rule+"]}\n", nil, nil)
		if all := strings.Join(faults, "\n"); !strings.Contains(all, c.want) {
			t.Errorf("%s: %s, want %q", c.rule, all, c.want)
		}
	}
}
