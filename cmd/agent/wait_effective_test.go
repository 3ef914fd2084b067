package main

import (
	"encoding/json"
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestWaitEffective waits until older connections of a client have ended that does not report how
// it drains.
func TestWaitEffective(t *testing.T) {
	d := start(t, quickTemp(t))
	d.must(webDoc, "apply", "-f", "-")
	p := d.connect("web", nil, func(r *discoveryv3.DeltaDiscoveryRequest) {
		r.Node = &corev3.Node{Id: r.Node.Id, UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 36}}}}
	})
	p.next()("")
	agenttest.Contains(t, d.must("", "wait", "dp/web", "--effective"),
		"applied: 1 proxy acknowledged revision 2; no connection uses the previous filters")
	d.must(fmt.Sprintf(slowDoc, 7), "apply", "-f", "-")
	p.next()("")
	const assumed = "(drain time 10m0s, gradual); these are Envoy's defaults, because the Envoy does not report its own:"
	agenttest.Contains(t, d.must("", "wait", "mt/slow"), "older connections may use the previous filters until ",
		"  default/web: until ", assumed)
	out, errs := d.late("wait", "mt/slow", "--effective", "--timeout", "1s")
	if out != "" {
		t.Errorf("%q", out)
	}
	agenttest.Contains(t, errs, "meshtimeout/slow in mesh default is applied, but not effective: "+
		"older connections of 1 proxy may use the previous filters, until ", "default/web: until ", assumed,
		"its new listeners may not be in use yet")
	out, _ = d.late("wait", "mt/slow", "--effective", "--timeout", "1s", "-o", "json")
	var doc api.Applied
	if err := json.Unmarshal([]byte(out), &doc); err != nil ||
		doc.State != api.StateDraining || !doc.Effective || doc.OldTotal != 1 || doc.Old[0].DrainTime != "10m0s" {
		t.Errorf("%v, %s", err, out)
	}
	agenttest.Contains(t, d.must("", "status"), "draining   older connections of 1 proxy may use previous filters",
		"  default/web: until ", assumed)
	// The process of the client has no connection of the listener.
	agenttest.Contains(t, d.must("", "wait", "mt/slow", "--effective"),
		"applied: 1 proxy acknowledged revision ", "; no connection uses the previous filters")
	d.must("", "delete", "mt", "slow")
	p.next()("")
	agenttest.Contains(t, d.must("", "wait", "mt/slow", "--for=gone"),
		"meshtimeout/slow in mesh default gone", "older connections may use the previous filters until ")
}
