package ads

import (
	"strconv"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func envoyNode(minor uint32, types ...string) *core.Node {
	return &core.Node{
		UserAgentName: "envoy",
		UserAgentVersionType: &core.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &core.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor}},
		},
		Extensions: []*core.Extension{{Category: "envoy.filters.http", TypeUrls: types},
			{Category: "envoy.tracers", Disabled: true, TypeUrls: []string{"off"}}},
	}
}

func TestBuildsAreShared(t *testing.T) {
	var b builds
	one := b.of(envoyNode(36, "a.A", "a.B", strings.Repeat("x", maxTypeName+1)))
	if one == nil || one != b.of(envoyNode(36, "a.A", "a.B")) {
		t.Fatal("two Envoys of one build do not share it")
	}
	if one == b.of(envoyNode(37, "a.A", "a.B")) || one == b.of(envoyNode(36, "a.A")) {
		t.Error("Envoys of other builds share it")
	}
	if one.Version.String() != "1.36.0" || !one.Has("envoy.filters.http", "a.B") || one.Has("envoy.filters.http", "a.C") ||
		one.Has("envoy.tracers", "off") {
		t.Errorf("%+v", one)
	}
	if b.of(&core.Node{UserAgentName: "envoy"}) != nil || b.of(&core.Node{UserAgentName: "gRPC Go",
		UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: "1.60.0"}}) != nil {
		t.Error("a build of a client that does not say its version")
	}
}

func TestBuildsAreBounded(t *testing.T) {
	var b builds
	for i := range 10 * maxBuilds {
		b.of(envoyNode(36, strconv.Itoa(i)))
	}
	if len(b.known) > maxBuilds {
		t.Errorf("%d builds are kept", len(b.known))
	}
	var many []string
	for i := range maxExtensions + 1 {
		many = append(many, strconv.Itoa(i))
	}
	if x := b.of(envoyNode(36, many...)); x == nil || x.Extensions != nil || !x.Has("envoy.filters.http", "a") {
		t.Errorf("a list that is too long is kept: %+v", x)
	}
}
