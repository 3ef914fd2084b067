package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// reachable returns the names of the services for which a dataplane has outbounds.
func reachable(t *testing.T, doc, dataplane string) string {
	t.Helper()
	x := indexOf(t, decode(t, doc), policy.Options{AutoReachable: true})
	outbounds, _ := x.Outbounds(x.View.Dataplane(dataplane))
	var out []string
	for _, o := range outbounds {
		name := o.Service.Tag
		if o.Service.ID.Kind != mesh.KindTag {
			name = o.Service.Resource.Kind + "/" + o.Service.Resource.Name
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// TestAutoReachable derives reachable services from permissions.
func TestAutoReachable(t *testing.T) {
	const tp = "transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001"
	base := func(mtls, services, proxy string) string {
		return "{type: Mesh, name: default, meshServices: {mode: " + services + "}" + mtls + "}\n---\n" +
			"{type: Dataplane, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, " +
			"team: front}}], " + proxy + "}}\n---\n" +
			"{type: Dataplane, name: a, networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: a, " +
			"version: v1}}]}}\n---\n" +
			"{type: Dataplane, name: b, networking: {address: 10.0.0.3, inbound: [{port: 80, " +
			"tags: {kuma.io/service: b}}]}}\n---\n" +
			"{type: ExternalService, name: out, networking: {address: 'example.com:80'}, tags: {kuma.io/service: out}}\n---\n"
	}
	const mtls = ", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"
	allow := func(name, target, client, action string) string {
		return mesht(name, target, fmt.Sprintf("from: [{targetRef: %s, default: {a: %s}}]", client, action))
	}
	for name, c := range map[string]struct{ doc, want string }{
		"nothing is permitted": {base(mtls, "Disabled", tp+"}"), "out out"},
		"no mTLS":              {base("", "Disabled", tp+"}"), "a b out out web"},
		"all": {base(mtls, "Disabled", tp+"}") + allow("p", "{kind: Mesh}", "{kind: Mesh}", "allow"),
			"a b out out web"},
		"one service": {base(mtls, "Disabled", tp+"}") +
			allow("p", "{kind: MeshService, name: a}", "{kind: MeshService, name: web}", "allow"), "a out out"},
		"by a tag of the client": {base(mtls, "Disabled", tp+"}") +
			allow("p", "{kind: MeshService, name: a}", "{kind: MeshSubset, tags: {team: front}}", "allow"), "a out out"},
		"for another client": {base(mtls, "Disabled", tp+"}") +
			allow("p", "{kind: MeshService, name: a}", "{kind: MeshService, name: b}", "allow"), "out out"},
		"the stronger denies": {base(mtls, "Disabled", tp+"}") + allow("p", "{kind: Mesh}", "{kind: Mesh}", "allow") +
			allow("q", "{kind: MeshService, name: a}", "{kind: Mesh}", "deny"), "b out out web"},
		"for single workloads": {base(mtls, "Disabled", tp+"}") +
			allow("p", "{kind: MeshServiceSubset, name: a, tags: {version: v1}}", "{kind: Mesh}", "allow"), "a out out"},
		"for one workload": {base(mtls, "Disabled", tp+"}") +
			allow("p", "{kind: Dataplane, name: b}", "{kind: Mesh}", "allow"), "b out out"},
		"it lists what it reaches": {base(mtls, "Disabled", tp+", reachableServices: [b]}"), "b"},
		"it lists its outbounds": {base(mtls, "Disabled", tp+"}, outbound: [{port: 1000, tags: {kuma.io/service: b}}]"),
			"b out out"},
		"service resources": {base(mtls, "Everywhere", tp+"}") +
			allow("p", "{kind: MeshService, name: a}", "{kind: Mesh}", "allow"), "a out out MeshService/a"},
		"a service resource by what it has": {base(mtls, "Exclusive", tp+"}") +
			"{type: MeshService, name: r, spec: {selector: {dataplaneTags: {version: v1}}, ports: [{port: 80}]}}\n---\n" +
			allow("p", "{kind: MeshSubset, tags: {version: v1}}", "{kind: Mesh}", "allow"),
			"MeshService/a MeshService/b MeshService/web MeshService/r"},
		"shadow policies permit nothing": {base(mtls, "Disabled", tp+"}") + strings.Replace(allow("p", "{kind: Mesh}",
			"{kind: Mesh}", "allow"), "name: p,", "name: p, labels: {kuma.io/effect: shadow},", 1), "out out"},
	} {
		got := strings.Fields(reachable(t, c.doc, "web"))
		want := strings.Fields(c.want)
		for _, w := range want {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+w+" ") {
				t.Errorf("%s: %s is missing in %v", name, w, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestAutoReachableIsFollowed checks that a permission that does not select the client changes
// ReachDigest and not the fingerprint of its rules.
func TestAutoReachableIsFollowed(t *testing.T) {
	const doc = "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}\n---\n" +
		"{type: Dataplane, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], " +
		"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}\n---\n" +
		"{type: Dataplane, name: a, networking: {address: 10.0.0.2, inbound: [{port: 80, " +
		"tags: {kuma.io/service: a}}]}}\n---\n"
	permission := mesht("p", "{kind: MeshService, name: a}", "from: [{targetRef: {kind: Mesh}, default: {a: allow}}]")
	of := func(doc string, auto bool) (rules, reach [32]byte) {
		x := indexOf(t, decode(t, doc), policy.Options{AutoReachable: auto})
		web := x.View.Dataplane("web")
		return x.Match(web).Fingerprint, x.ReachDigest(web)
	}
	rules, reach := of(doc, true)
	if r, with := of(doc+permission, true); r != rules || with == reach {
		t.Error("a permission of another proxy does not change ReachDigest, or changes the fingerprint")
	}
	if r, with := of(doc+permission, false); r != rules || with != [32]byte{} {
		t.Error("a permission of another proxy changes ReachDigest of a proxy that does not depend on it")
	}
	listed := strings.Replace(doc, "redirectPortOutbound: 15001",
		"redirectPortOutbound: 15001, reachableServices: [a], reachableBackends: {refs: []}", 1)
	if _, with := of(listed+permission, true); with != [32]byte{} {
		t.Error("a permission changes ReachDigest of a proxy that lists its reachable services")
	}
}

// TestAutoReachableOfMesh checks that the label of the mesh overrides the agent's config.
func TestAutoReachableOfMesh(t *testing.T) {
	const doc = "{type: Mesh, name: default%s%s}\n---\n" +
		"{type: Dataplane, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}], " +
		"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}\n---\n"
	const mtls = ", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"
	label := func(v string) string { return fmt.Sprintf(", labels: {nearside.io/auto-reachable-backends: '%s'}", v) }
	for _, c := range []struct {
		label, mtls string
		agent, want bool
		why, warned string
	}{
		{"", mtls, false, false, "the agent's config (mesh.autoReachableBackends)", ""},
		{"", mtls, true, true, "the agent's config (mesh.autoReachableBackends)", ""},
		{label("true"), mtls, false, true, "the label nearside.io/auto-reachable-backends of the mesh", ""},
		{label("false"), mtls, true, false, "the label nearside.io/auto-reachable-backends of the mesh", ""},
		{label("yes"), mtls, true, true, "the agent's config (mesh.autoReachableBackends)",
			`must be true or false, not "yes"`},
		{label("true"), "", false, false, "the label nearside.io/auto-reachable-backends of the mesh enables it, " +
			"but the mesh has no mTLS and therefore admits every client", ""},
	} {
		x := indexOf(t, decode(t, fmt.Sprintf(doc, c.label, c.mtls)), policy.Options{AutoReachable: c.agent})
		on, why := x.AutoReachable()
		outbounds, _ := x.Outbounds(x.View.Dataplane("web"))
		if on != c.want || why != c.why || on != (len(outbounds) == 0) || warned(x.Warnings, c.warned) != (c.warned != "") {
			t.Errorf("%q %v: %v %q %v, %d outbounds", c.label, c.agent, on, why, x.Warnings, len(outbounds))
		}
	}
}

// TestNamesAreNotTrimmed uses services that select workloads by tags other than kuma.io/service. A
// permission that names a service, or a dataplane, does not apply to them.
func TestNamesAreNotTrimmed(t *testing.T) {
	const docs = reachBase + "{type: Dataplane, name: a, networking: {address: 10.0.1.1, inbound: [{port: 80, " +
		"tags: {kuma.io/service: a, app: a}}]}}\n---\n" +
		"{type: Dataplane, name: c, networking: {address: 10.0.1.2, inbound: [{port: 80, tags: {kuma.io/service: c, " +
		"app: c}}]}}\n---\n"
	for top, want := range map[string]string{
		"{kind: MeshService, name: c}": "c default_c___msvc_80",
		"{kind: MeshService, name: by-app}": "default_both__default_mzsvc_80 default_by-app__default_msvc_80 " +
			"default_by-app__default_msvc_81",
		"{kind: MeshServiceSubset, name: c, tags: {version: x}}": "c default_c___msvc_80",
		"{kind: Dataplane, name: c}":                             "c default_c___msvc_80",
		"{kind: Dataplane, name: a}": "a default_a___msvc_80 default_both__default_mzsvc_80 " +
			"default_by-app__default_msvc_80 default_by-app__default_msvc_81",
	} {
		allow := mesht("p", top, "from: [{targetRef: {kind: Mesh}, default: {a: allow}}]")
		x := indexOf(t, decode(t, docs+allow), policy.Options{AutoReachable: true})
		var got []string
		for _, n := range reachedBy(x) {
			if _, name, _ := strings.Cut(n, "/"); !strings.Contains(name, "none") && name != "out" {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: reachable are %v, want %s", top, got, want)
		}
	}
}
