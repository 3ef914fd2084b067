package access_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

const (
	agentUID = 900
	group    = 800
)

func local(uid uint32, groups ...uint32) access.Peer {
	return access.Peer{Local: true, UID: uid, GID: uid, Groups: groups}
}

func holder(mesh, name string, services ...string) access.Peer {
	return access.Peer{Addr: "10.0.0.9:5", Token: &token.Claims{Audience: token.AudienceXDS, Subject: mesh + "." + name,
		Mesh: mesh, Name: name, Services: services}}
}

func with(p access.Peer, edit func(*access.Peer)) access.Peer { edit(&p); return p }

// TestDecide checks which peer may use which node id, and which parts of the node metadata.
func TestDecide(t *testing.T) {
	rules := []access.ProxyRule{
		{Matcher: access.Matcher{UID: "1005"}}, // nothing
		{Matcher: access.Matcher{UID: "1000-1009"}, Nodes: []string{"default.web-*"}, Bring: true, Services: []string{"web"},
			Tags: []string{"app=*"}},
		{Matcher: access.Matcher{User: "1010"}, Nodes: []string{"*"}},
		{Matcher: access.Matcher{Group: "77", UID: "1011"}, Nodes: []string{"default.both"}},
		{Matcher: access.Matcher{Cgroup: "/system.slice/envoy@*.service"}, Nodes: []string{"default.unit"}},
		{Matcher: access.Matcher{Token: "ci*"}, Nodes: []string{"default.*"}, Bring: true, Services: []string{"web*"}},
		{Certificate: "*.mesh", Nodes: []string{"default.far"}},
		{Matcher: access.Matcher{User: "no-such-user"}, Nodes: []string{"*"}},
	}
	cgroup := func(path string) access.Peer {
		return with(local(5000), func(p *access.Peer) { p.Cgroup = path })
	}
	ci := func(mesh, name string, services ...string) access.Peer {
		return with(holder(mesh, name, services...), func(p *access.Peer) { p.Token.Subject = "ci-1" })
	}
	for _, c := range []struct {
		name     string
		rules    []access.ProxyRule
		insecure bool
		peer     access.Peer
		target   access.Target
		want     string // prefix of the rule, or "-" and a substring of the reason
	}{
		{"root", nil, false, local(0), access.Target{ID: "default.web", Brought: true}, "default of root"},
		{"agent", nil, false, local(agentUID), access.Target{ID: ".egress.a"}, "default of root"},
		{"member", nil, false, local(1, group), access.Target{ID: "default.web"}, "default of the group"},
		{"primary group", nil, false, local(group), access.Target{ID: "default.web"}, "default of the group"},
		{"member takes what another brought", nil, false, local(1, group), access.Target{ID: "default.web", Brought: true},
			"-was sent by the Envoy of another user"},
		{"stranger", nil, false, local(1001), access.Target{ID: "default.payments"},
			"-add an item to xds.access with uid: 1001"},
		{"root of another namespace", nil, false, with(local(0), func(p *access.Peer) { p.Foreign = true }),
			access.Target{ID: "default.web"}, "-not in the group"},
		{"tcp", nil, false, access.Peer{Addr: "10.0.0.9:5"}, access.Target{ID: "default.web"}, "-needs a token"},
		{"tcp, insecure", nil, true, access.Peer{Addr: "10.0.0.9:5"}, access.Target{ID: "default.web"}, "xds.insecure"},
		{"tcp, insecure, brought", nil, true, access.Peer{Addr: "10.0.0.9:5"},
			access.Target{ID: "default.web", Brought: true}, "-another user"},
		{"uid 0 over tcp", nil, false, access.Peer{UID: 0, Addr: "10.0.0.9:5"}, access.Target{ID: "default.web"},
			"-needs a token"},
		{"token", nil, false, holder("default", "web-*"), access.Target{ID: "default.web-1"}, "token"},
		{"token of another mesh", nil, false, holder("other", "*"), access.Target{ID: "default.web-1"},
			`-the token is for "other.*"`},
		{"token and zone proxy", nil, false, holder("default", "*"), access.Target{ID: ".egress.default"},
			"-the token is for"},
		{"stranger with a token", nil, false, with(local(1001),
			func(p *access.Peer) { p.Token = holder("default", "web").Token }), access.Target{ID: "default.web"}, "token"},
		{"certificate", nil, false, access.Peer{Addr: "a:1", Names: []string{"x", "default.web"}},
			access.Target{ID: "default.web"}, "certificate"},
		{"another's certificate", nil, false, access.Peer{Addr: "a:1", Names: []string{"default.*"}},
			access.Target{ID: "default.web"}, "-client certificate"},
		{"pin", nil, false, local(1, group), access.Target{ID: "default.web", Pins: access.Pins{User: "1"}},
			"default of the group"},
		{"pin of another", nil, false, local(1, group), access.Target{ID: "default.web", Pins: access.Pins{User: "2"}},
			"-has the label nearside.io/user: 2"},
		{"pin and root", nil, false, local(0), access.Target{ID: "default.web", Pins: access.Pins{User: "2"}},
			"default of root"},
		{"pin and the agent", nil, false, local(agentUID), access.Target{ID: "default.web", Pins: access.Pins{User: "2"}},
			"-has the label"},
		{"pin by name", nil, false, local(1, group), access.Target{ID: "default.web", Pins: access.Pins{User: "daemon"}},
			"default of the group"},
		{"pin by a name that is none", nil, false, local(1, group),
			access.Target{ID: "default.web", Pins: access.Pins{User: "no-such-user"}}, "-has the label"},
		{"pin and token", nil, false, holder("default", "web"),
			access.Target{ID: "default.web", Pins: access.Pins{User: "1"}}, "-has the label"},

		{"no rule for root", rules, false, local(0), access.Target{ID: "default.web"}, "-no item of xds.access matches"},
		{"empty list", []access.ProxyRule{}, false, local(0), access.Target{ID: "default.web"}, "-no item"},
		{"first match refuses", rules, false, local(1005), access.Target{ID: "default.web-1"},
			"-xds.access[0] matches the peer but does not list"},
		{"range", rules, false, local(1009), access.Target{ID: "default.web-1"}, "xds.access[1]"},
		{"range, other node", rules, false, local(1009), access.Target{ID: "default.webber"}, "-xds.access[1] matches"},
		{"range over tcp", rules, false, access.Peer{UID: 1009, Addr: "a:1"}, access.Target{ID: "default.web-1"}, "-no item"},
		{"user", rules, false, local(1010), access.Target{ID: ".ingress.x"}, "xds.access[2]"},
		{"all keys", rules, false, local(1011, 77), access.Target{ID: "default.both"}, "xds.access[3]"},
		{"one key of two", rules, false, local(1011), access.Target{ID: "default.both"}, "-no item"},
		{"cgroup", rules, false, cgroup("/system.slice/envoy@web.service"), access.Target{ID: "default.unit"},
			"xds.access[4]"},
		{"below the cgroup", rules, false, cgroup("/system.slice/envoy@web.service/sub"), access.Target{ID: "default.unit"},
			"xds.access[4]"},
		{"cgroup that looks like it", rules, false, cgroup("/user.slice/system.slice/envoy@web.service"),
			access.Target{ID: "default.unit"}, "-no item"},
		{"element that spans", rules, false, cgroup("/system.slice/envoy@x/y.service"), access.Target{ID: "default.unit"},
			"-no item"},
		{"unknown cgroup", rules, false, cgroup(""), access.Target{ID: "default.unit"}, "-no item"},
		{"token by rule", rules, false, ci("default", "a*"), access.Target{ID: "default.ab"}, "xds.access[5]"},
		{"token narrower than its rule", rules, false, ci("default", "a*"), access.Target{ID: "default.b"},
			`-the token is for "default.a*"`},
		{"certificate by rule", rules, false, access.Peer{Addr: "a:1", Names: []string{"x.mesh"}},
			access.Target{ID: "default.far"}, "xds.access[6]"},
		{"insecure with rules", rules, true, access.Peer{Addr: "a:1"}, access.Target{ID: "default.web"}, "-no item"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := access.NewProxies(access.ProxyOptions{Rules: c.rules, AgentUID: agentUID, GID: group,
				Insecure: c.insecure})
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.Decide(&c.peer, c.target)
			reason, denied := strings.CutPrefix(c.want, "-")
			switch {
			case !denied && (err != nil || !strings.HasPrefix(g.Rule, c.want)):
				t.Errorf("got %q, %v; want %q", g.Rule, err, c.want)
			case denied && err == nil:
				t.Errorf("allowed by %q", g.Rule)
			case denied && (!strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), c.target.ID) ||
				!errors.As(err, new(*access.DeniedError))):
				t.Errorf("got %v; want %q", err, reason)
			}
		})
	}
}

// TestClaim checks which claims a Dataplane in the node metadata may make.
func TestClaim(t *testing.T) {
	decide := func(t *testing.T, rules []access.ProxyRule, p access.Peer) access.Grant {
		t.Helper()
		x, err := access.NewProxies(access.ProxyOptions{Rules: rules, AgentUID: agentUID, GID: group})
		if err != nil {
			t.Fatal(err)
		}
		g, err := x.Decide(&p, access.Target{ID: "default.web"})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	rule := func(services, tags []string) []access.ProxyRule {
		return []access.ProxyRule{{Matcher: access.Matcher{UID: "0-4000000000"}, Nodes: []string{"*"}, Bring: services != nil,
			Services: services, Tags: tags},
			{Matcher: access.Matcher{Token: "*"}, Nodes: []string{"*"}, Bring: services != nil, Services: services, Tags: tags}}
	}
	for _, c := range []struct {
		name           string
		rules          []access.ProxyRule
		peer           access.Peer
		services, tags []string
		want           string // "" means allowed
	}{
		{"root", nil, local(0), []string{"payments"}, []string{"app=payments"}, ""},
		{"member", nil, local(1, group), []string{"web"}, nil, "without a Dataplane in the node metadata"},
		{"rule without bring", rule(nil, nil), local(7), []string{"web"}, nil, "set bring"},
		{"rule", rule([]string{"web", "w-*"}, nil), local(7), []string{"web", "w-1"}, []string{"kuma.io/protocol=http"}, ""},
		{"service of another rule", rule([]string{"web"}, nil), local(7), []string{"web", "payments"}, nil,
			`kuma.io/service="payments"`},
		{"tag", rule([]string{"web"}, nil), local(7), []string{"web"}, []string{"app=payments"}, `app="payments"`},
		{"listed tag", rule([]string{"web"}, []string{"app=web*"}), local(7), []string{"web"}, []string{"app=web1"}, ""},
		{"other value of a listed tag", rule([]string{"web"}, []string{"app=web*"}), local(7), []string{"web"},
			[]string{"app=payments"}, `add "app=payments"`},
		{"token", nil, holder("default", "*", "web"), []string{"web"}, nil, ""},
		{"token without a service", nil, holder("default", "*"), []string{"web"}, nil, "without a Dataplane"},
		{"token, other service", nil, holder("default", "*", "web"), []string{"payments"}, nil, "payments"},
		{"token and rule", rule([]string{"web*"}, nil), holder("default", "*", "web-1", "payments"),
			[]string{"web-1"}, nil, ""},
		{"token beyond its rule", rule([]string{"web*"}, nil), holder("default", "*", "web-1", "payments"),
			[]string{"payments"}, nil, "payments"},
		{"rule beyond its token", rule([]string{"web*"}, nil), holder("default", "*", "web-1"), []string{"web-2"},
			nil, "web-2"},
		{"rule within its token", rule([]string{"web-1"}, nil), holder("default", "*", "web-*"), []string{"web-1"}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := decide(t, c.rules, c.peer)
			err := g.Claim(c.services, c.tags)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
}

// TestRoles checks which actions on resources each role allows.
func TestRoles(t *testing.T) {
	roles := []access.Role{
		{Name: "ops", Template: "mesh-operator", Subjects: []access.Matcher{{UID: "10"}}},
		{Name: "watchers", Template: "observability", Subjects: []access.Matcher{{UID: "11"}, {Token: "grafana"}}},
		{Name: "readers", Template: "viewer", Subjects: []access.Matcher{{Group: "78"}}},
		{Name: "web", Subjects: []access.Matcher{{UID: "12"}}, Allow: []access.Allow{
			{Kinds: []string{"MeshTimeout", "Mesh"}, Meshes: []string{"default"}, Names: []string{"web-*", "default"},
				Verbs: []string{"*"}}}},
		{Name: "nobody", Subjects: []access.Matcher{{User: "no-such-user"}},
			Allow: []access.Allow{{Kinds: []string{"*"}, Verbs: []string{"*"}}}},
	}
	grafana := access.Peer{Addr: "127.0.0.1:9", Token: &token.Claims{Subject: "grafana"}}
	static := access.Peer{Addr: "127.0.0.1:9", Token: &token.Claims{Subject: access.StaticSubject}}
	do := func(verb, kind, mesh, name string) access.Action {
		return access.Action{Verb: verb, Kind: kind, Mesh: mesh, Name: name}
	}
	for _, c := range []struct {
		name  string
		roles []access.Role
		peer  access.Peer
		act   access.Action
		want  string // "" means allowed
	}{
		{"root", roles, local(0), do("delete", "Mesh", "default", "default"), ""},
		{"agent", roles, local(agentUID), do("create", "MeshPassthrough", "default", "a"), ""},
		{"group without a role", roles, local(1, group), do("get", "MeshTimeout", "default", "a"),
			"the roles that allow it: ops, watchers, readers, nobody"},
		{"operator", roles, local(10), do("update", "MeshPassthrough", "default", "a"), ""},
		{"observability reads", roles, local(11), do("list", "MeshPassthrough", "default", ""), ""},
		{"observability writes backends", roles, local(11), do("create", "MeshAccessLogBackend", "default", "a"), ""},
		{"observability writes policies", roles, local(11), do("create", "MeshAccessLog", "default", "a"),
			"may not create MeshAccessLog default/a; the roles that allow it: ops, nobody"},
		{"observability by token", roles, grafana, do("delete", "GlobalAccessLogBackend", "", "a"), ""},
		{"passthrough is for operators", roles, local(11), do("update", "MeshPassthrough", "default", "a"), "ops"},
		{"viewer", roles, local(2, 78), do("inspect", "Dataplane", "default", "a"), ""},
		{"viewer, status", roles, local(2, 78), do("inspect", "", "", ""), ""},
		{"viewer writes", roles, local(2, 78), do("delete", "Dataplane", "default", "a"), "ops"},
		{"own names", roles, local(12), do("update", "MeshTimeout", "default", "web-1"), ""},
		{"other names", roles, local(12), do("update", "MeshTimeout", "default", "x"), "roles that allow it: ops"},
		{"other mesh", roles, local(12), do("update", "MeshTimeout", "other", "web-1"), "ops"},
		{"own mesh", roles, local(12), do("get", "Mesh", "default", "default"), ""},
		{"static token without a role", roles, static, do("get", "Mesh", "default", "default"), "readers"},
		{"no roles, group", nil, local(1, group), do("delete", "Mesh", "default", "default"), ""},
		{"no roles, other", nil, local(1), do("get", "Mesh", "default", "default"), ""},
		{"no roles, other writes", nil, local(1), do("create", "Mesh", "default", "default"),
			"uid=1 (daemon) may not create Mesh default/default: writing requires root, " +
				"uid 900 or a member of the group admins"},
		{"no roles, tcp", nil, access.Peer{Addr: "127.0.0.1:9"}, do("get", "Mesh", "default", "default"),
			"a token is required"},
		{"no roles, token reads", nil, grafana, do("list", "Mesh", "", ""), ""},
		{"no roles, token writes", nil, grafana, do("create", "Mesh", "m", "m"), "the token allows only reading"},
		{"no roles, static token", nil, static, do("create", "Mesh", "m", "m"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := access.NewRoles(access.RoleOptions{Roles: c.roles, AgentUID: agentUID, GID: group, Group: "admins"})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Can(&c.peer, c.act)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
	r, err := access.NewRoles(access.RoleOptions{Roles: roles, AgentUID: agentUID, GID: group})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Missing(); len(got) != 1 ||
		!strings.Contains(got[0], `api.roles[4].subjects[0]: the user "no-such-user"`) {
		t.Errorf("missing: %q", got)
	}
	web := local(12)
	if err := r.CanSome(&web, do("list", "MeshTimeout", "default", "")); err != nil {
		t.Errorf("a list of some: %v", err)
	}
	if err := r.Can(&web, do("list", "MeshTimeout", "default", "")); err == nil {
		t.Error("a list of all is allowed to who may see some")
	}
	for _, c := range []struct {
		role           string
		allowed, known bool
	}{
		{"ops", true, true}, {"viewer", false, true}, {"mesh-operator", true, true}, {"none", false, false},
		{"web", false, true},
	} {
		if allowed, known := r.RoleMay(c.role, do("create", "MeshTimeout", "default", "a")); allowed != c.allowed ||
			known != c.known {
			t.Errorf("role %s: %v, %v", c.role, allowed, known)
		}
	}
}

// TestFeatures checks which features and which actions on the agent the permissions of a role
// include.
func TestFeatures(t *testing.T) {
	all := []string{"*"}
	patch := func(f access.Features) access.Action {
		return access.Action{Verb: access.VerbUpdate, Kind: "MeshProxyPatch", Mesh: "default", Name: "a", Features: f}
	}
	agent := access.Action{Verb: access.VerbUpdate, Kind: access.KindAgent}
	both := access.FeaturePatch | access.FeatureLogPath
	for _, c := range []struct {
		name  string
		allow access.Allow
		act   access.Action
		want  bool
	}{
		{"all kinds, both features", access.Allow{Kinds: all, Verbs: all}, patch(both), true},
		{"all kinds, agent", access.Allow{Kinds: all, Verbs: all}, agent, true},
		{"all kinds of one mesh, agent", access.Allow{Kinds: all, Verbs: all, Meshes: []string{"default"}}, agent, false},
		{"all kinds with one feature", access.Allow{Kinds: all, Verbs: all, Features: []string{"log-path"}}, patch(both),
			false},
		{"all kinds with that feature", access.Allow{Kinds: all, Verbs: all, Features: []string{"patch-unsafe"}},
			patch(access.FeaturePatch), true},
		{"kind without features", access.Allow{Kinds: []string{"MeshProxyPatch"}, Verbs: all}, patch(0), true},
		{"kind needs the feature", access.Allow{Kinds: []string{"MeshProxyPatch"}, Verbs: all},
			patch(access.FeaturePatch), false},
		{"pattern needs the feature", access.Allow{Kinds: []string{"Mesh*", "**"}, Verbs: all},
			patch(access.FeaturePatch), false},
		{"kind with the feature", access.Allow{Kinds: []string{"MeshProxyPatch"}, Verbs: all,
			Features: []string{"patch-unsafe"}}, patch(access.FeaturePatch), true},
		{"kind with another feature", access.Allow{Kinds: []string{"MeshProxyPatch"}, Verbs: all,
			Features: []string{"log-path"}}, patch(access.FeaturePatch), false},
		{"pattern, agent", access.Allow{Kinds: []string{"**", "A*", "Agen*"}, Verbs: all}, agent, false},
		{"agent by name", access.Allow{Kinds: []string{"Agent"}, Verbs: []string{"update"}}, agent, true},
		{"agent by name, other verb", access.Allow{Kinds: []string{"Agent"}, Verbs: []string{"inspect"}}, agent, false},
		{"other kind, agent", access.Allow{Kinds: []string{"Mesh"}, Verbs: all}, agent, false},
	} {
		if got := c.allow.Covers(c.act); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for name, want := range map[string][4]bool{ // patch, log path, update and inspect Agent
		access.TemplateOperator: {true, true, true, true}, access.TemplateObservability: {},
		access.TemplateViewer: {3: true}, access.TemplateKubernetes: {},
	} {
		r, err := access.NewRoles(access.RoleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, act := range []access.Action{patch(access.FeaturePatch),
			{Verb: access.VerbUpdate, Kind: "MeshAccessLogBackend", Mesh: "default", Name: "a",
				Features: access.FeatureLogPath}, agent, {Verb: access.VerbInspect, Kind: access.KindAgent}} {
			if got, _ := r.RoleMay(name, act); got != want[i] {
				t.Errorf("%s, %s: %v", name, act, got)
			}
		}
	}
	_, err := access.NewRoles(access.RoleOptions{Roles: []access.Role{{Name: "a", Allow: []access.Allow{
		{Kinds: all, Verbs: all, Features: []string{"log-paths"}}}}}})
	if err == nil || !strings.Contains(err.Error(),
		`api.roles[0].allow[0].features: "log-paths" is not a feature; use one of patch-unsafe, log-path`) {
		t.Error(err)
	}
	if got := patch(both).String(); got != "update MeshProxyPatch default/a with patch-unsafe, log-path" {
		t.Error(got)
	}
}

// TestFaults checks the errors about invalid or empty rules and roles.
func TestFaults(t *testing.T) {
	_, err := access.NewProxies(access.ProxyOptions{Rules: []access.ProxyRule{{Nodes: []string{"*"}}}})
	if err == nil || !strings.Contains(err.Error(), "xds.access[0]: it matches no peer") {
		t.Error(err)
	}
	_, err = access.NewRoles(access.RoleOptions{Roles: []access.Role{
		{Name: "a", Subjects: []access.Matcher{{}}, Allow: []access.Allow{{Kinds: []string{"*"}, Verbs: []string{"write"}}}},
		{Name: "a", Template: "viewer"}, {Name: "viewer", Template: "mesh-operator"}, {Name: "b"},
		{Name: "c", Template: "viewer", Subjects: []access.Matcher{{UID: "9-1"}}},
	}})
	for _, want := range []string{
		"api.roles[0].subjects[0]: it matches no peer", `"write" is not a verb; use one of get, list`, "api.roles[1].name",
		"api.roles[2].name", "api.roles[3]: the role allows nothing", "api.roles[4].subjects[0]: uid: \"9-1\" is empty",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	var rules []access.ProxyRule
	for i := range 100 {
		rules = append(rules, access.ProxyRule{Matcher: access.Matcher{UID: fmt.Sprint(1000 + i),
			Cgroup: "/system.slice/envoy@*.service"}, Nodes: []string{fmt.Sprintf("default.web-%d-*", i)}})
	}
	p, err := access.NewProxies(access.ProxyOptions{Rules: rules, GID: -1})
	if err != nil {
		b.Fatal(err)
	}
	peer := access.Peer{Local: true, UID: 1099, Cgroup: "/system.slice/envoy@a.service"}
	for b.Loop() {
		if _, err := p.Decide(&peer, access.Target{ID: "default.web-99-a", Pins: access.Pins{User: "1099"}}); err != nil {
			b.Fatal(err)
		}
	}
}
