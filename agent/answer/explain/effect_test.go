package explain_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestWithoutEffect checks that fields without effect are not reported as effective, even if
// nothing overrides them.
func TestWithoutEffect(t *testing.T) {
	const (
		mesh = "{type: Mesh, name: default}\n"
		mtls = "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}\n"
		open = "{type: Mesh, name: default, networking: {outbound: {passthrough: true}}}\n"
		web  = "---\n{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
			"tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: 20001, " +
			"tags: {kuma.io/service: web}}]}}\n---\n"
		clear = "---\n{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
			"tags: {kuma.io/service: web}}], transparentProxying: {redirectPortInbound: 15006, " +
			"redirectPortOutbound: 15001}}}\n---\n"
		allow = "{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, " +
			"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}"
		dns = "[{type: Domain, value: a.com, port: 443, protocol: tls}]"
	)
	through := func(conf string) string {
		return "{type: MeshPassthrough, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, default: " + conf + "}}"
	}
	patch := func(modifications string) string {
		return "{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, " +
			"default: {appendModifications: [" + modifications + "]}}}"
	}
	const (
		bad      = "{cluster: {operation: Patch, match: {origin: outbound}, value: 'lbPolicy: CLUSTER_PROVIDED'}}"
		good     = "{cluster: {operation: Patch, match: {origin: inbound}, value: 'connectTimeout: 1s'}}"
		template = "{type: ProxyTemplate, mesh: default, name: p, selectors: [{match: {kuma.io/service: '*'}}], " +
			"conf: {imports: [default-proxy], modifications: [{cluster: {operation: patch, match: {origin: outbound}, " +
			"value: 'lbPolicy: CLUSTER_PROVIDED'}}]}}"
	)
	for name, c := range map[string]struct{ docs, want string }{
		"permission":              {mtls + web + allow, explain.EffectAll},
		"permission without mTLS": {mesh + web + allow, explain.EffectNone},
		"passthrough": {mesh + clear + through("{passthroughMode: Matched, appendMatch: "+dns+"}"),
			explain.EffectAll},
		"passthrough, not intercepted": {mesh + web + through("{passthroughMode: None}"), explain.EffectNone},
		"passthrough, the mesh is open": {open + clear + through("{enabled: false, appendMatch: "+dns+"}"),
			explain.EffectNone},
		"passthrough, matches of none": {mesh + clear + through("{passthroughMode: None, appendMatch: "+dns+"}"),
			explain.EffectPart},
		"passthrough, a match is hidden": {mesh + clear + through("{passthroughMode: Matched, appendMatch: [{type: CIDR, "+
			"value: 0.0.0.0/0, port: 80, protocol: tcp}, {type: CIDR, value: '::/0', port: 80, protocol: tcp}, "+
			"{type: Domain, value: a.com, port: 80, protocol: http}]}"), explain.EffectAll}, // it adds listener filters
		"patch":                          {mesh + web + patch(good), explain.EffectAll},
		"patch that was dropped":         {mesh + web + patch(bad), explain.EffectNone},
		"patch that was dropped in part": {mesh + web + patch(good+", "+bad), explain.EffectPart},
		"template that was dropped":      {mesh + web + template, explain.EffectNone},
	} {
		t.Run(name, func(t *testing.T) {
			m := meshOf(t, c.docs)
			config, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := explain.NewProxy(m.Policies, m.View.Dataplane("web"), config.Warnings)
			if err != nil {
				t.Fatal(err)
			}
			p.WithEffects(effect.New(m, effect.Question(kinds.Registry().DecodeOne)))
			for _, got := range p.Policies() {
				if got.Effect != c.want || !got.Selected || c.want != explain.EffectAll && len(got.Warnings) == 0 {
					t.Errorf("got %s (selected %v), want %s: warnings %q, items %+v", got.Effect, got.Selected, c.want,
						got.Warnings, got.Items)
				}
			}
		})
	}
}
