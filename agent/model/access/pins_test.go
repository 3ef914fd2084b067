package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestPins checks which peers of the group may use a Dataplane with or without pins.
func TestPins(t *testing.T) {
	in := func(path string) access.Peer {
		return with(local(1, group), func(p *access.Peer) { p.Cgroup = path })
	}
	pinned := func(p access.Pins) access.Target { return access.Target{ID: "default.web", Stored: true, Pins: p} }
	unit, pod := access.Pins{Unit: "envoy@web.service"}, access.Pins{Pod: "0a1b-2c3d"}
	p, err := access.NewProxies(access.ProxyOptions{AgentUID: agentUID, GID: group})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		peer   access.Peer
		target access.Target
		want   string // prefix of the rule, or "-" and a substring of the reason
	}{
		{"no pin", local(1, group), pinned(access.Pins{}),
			`-add to it the label nearside.io/user: "1", or grant this peer the node id in xds.access`},
		{"no pin, unit", in("/system.slice/envoy@a.service"), pinned(access.Pins{}),
			"-for this unit only, nearside.io/unit: envoy@a.service"},
		{"no pin, token", holder("default", "web"), pinned(access.Pins{}), "token"},
		{"no pin, certificate", access.Peer{Addr: "a:1", Names: []string{"default.web"}}, pinned(access.Pins{}),
			"certificate"},
		{"no pin, agent", local(agentUID), pinned(access.Pins{}), "default of root"},
		{"no Dataplane yet", local(1, group), access.Target{ID: "default.web"}, "default of the group"},
		{"unit", in("/system.slice/system-envoy.slice/envoy@web.service"), pinned(unit), "default of the group"},
		{"below the unit", in("/system.slice/envoy@web.service/sub"), pinned(unit), "default of the group"},
		{"another unit", in("/system.slice/envoy@a.service"), pinned(unit),
			"-the unit of this peer is envoy@a.service"},
		{"unit of a user's manager", in("/user.slice/user-1.slice/user@1.service/app.slice/envoy@web.service"),
			pinned(unit), "-the unit of this peer is user@1.service"},
		{"unit within a unit", in("/system.slice/a.service/envoy@web.service"), pinned(unit),
			"-the unit of this peer is a.service"},
		{"unit outside", in("/../system.slice/envoy@web.service"), pinned(unit),
			"-the unit of this peer is unknown"},
		{"unknown unit", in(""), pinned(unit), "-the unit of this peer is unknown"},
		{"unit and user", in("/system.slice/envoy@web.service"),
			pinned(access.Pins{User: "2", Unit: "envoy@web.service"}), "-has the label nearside.io/user: 2"},
		{"pinned cgroup", in("/system.slice/a.service/x"), pinned(access.Pins{Cgroup: "/system.slice/a.service"}),
			"default of the group"},
		{"another cgroup", in("/system.slice/b.service"), pinned(access.Pins{Cgroup: "/system.slice/a.service"}),
			"-the cgroup of this peer is /system.slice/b.service"},
		{"pod", in("/kubepods/burstable/pod0a1b-2c3d/f00"), pinned(pod), "default of the group"},
		{"pod of systemd",
			in("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c3d.slice/cri-containerd-f00.scope"),
			pinned(pod), "default of the group"},
		{"guaranteed pod of systemd", in("/kubepods.slice/kubepods-pod0a1b_2c3d.slice/x.scope"), pinned(pod),
			"default of the group"},
		{"pod beside the agent's", in("/../../pod0a1b-2c3d/f00"), pinned(pod), "default of the group"},
		{"pod of another class", in("/../../../burstable/pod0a1b-2c3d/f00"), pinned(pod), "default of the group"},
		{"guaranteed pod beside the agent's parent", in("/../../kubepods-pod0a1b_2c3d.slice/x.scope"), pinned(pod),
			"default of the group"},
		{"pod of systemd beside the agent's",
			in("/../../../kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c3d.slice/x.scope"), pinned(pod),
			"default of the group"},
		{"seen from outside of pods", in("/../../../../kubepods/pod0a1b-2c3d/f00"), pinned(pod), "default of the group"},
		{"below a container of the agent's pod", in("/../f00/pod0a1b-2c3d"), pinned(pod), "-the pod of this peer is unknown"},
		{"below the agent", in("/pod0a1b-2c3d"), pinned(pod), "-the pod of this peer is unknown"},
		{"below a unit", in("/../../../../system.slice/a.service/pod0a1b-2c3d"), pinned(pod),
			"-the pod of this peer is unknown"},
		{"within another pod", in("/../../pod77/f00/pod0a1b-2c3d"), pinned(pod), "-the pod of this peer is 77"},
		{"another pod", in("/kubepods/pod77/pod0a1b-2c3d"), pinned(pod), "-the pod of this peer is 77"},
		{"pod elsewhere", in("/system.slice/kubepods/pod0a1b-2c3d"), pinned(pod),
			"-the pod of this peer is unknown"},
		{"pin by a name of a foreign user", with(in("/system.slice/envoy@web.service"),
			func(p *access.Peer) { p.Foreign = true }), pinned(unit), "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := p.Decide(&c.peer, c.target)
			reason, denied := strings.CutPrefix(c.want, "-")
			switch {
			case !denied && (err != nil || !strings.HasPrefix(g.Rule, c.want)):
				t.Errorf("got %q, %v; want %q", g.Rule, err, c.want)
			case denied && (err == nil || !strings.Contains(err.Error(), reason) || !errors.As(err, new(*access.DeniedError))):
				t.Errorf("got %v; want %q", err, reason)
			}
		})
	}
}

// TestUnpinnedAllowed checks that xds.unpinned can permit what the default refuses, but no more.
func TestUnpinnedAllowed(t *testing.T) {
	p, err := access.NewProxies(access.ProxyOptions{AgentUID: agentUID, GID: group, Unpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	member, stranger := local(1, group), local(2)
	if _, err := p.Decide(&member, access.Target{ID: "default.web", Stored: true}); err != nil {
		t.Error(err)
	}
	if _, err := p.Decide(&stranger, access.Target{ID: "default.web", Stored: true}); err == nil {
		t.Error("a user outside the group is admitted")
	}
	pinned := access.Target{ID: "default.web", Stored: true, Pins: access.Pins{User: "2"}}
	if _, err := p.Decide(&member, pinned); err == nil {
		t.Error("a Dataplane that is pinned to another user is served")
	}
}

// TestExamine checks the decision for a process that is not the Envoy: it reports pins and rules
// that depend on a cgroup.
func TestExamine(t *testing.T) {
	byDefault, err := access.NewProxies(access.ProxyOptions{AgentUID: agentUID, GID: group})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := access.NewProxies(access.ProxyOptions{AgentUID: agentUID, GID: group, Rules: []access.ProxyRule{
		{Matcher: access.Matcher{Cgroup: "/system.slice/*"}, Nodes: []string{"*"}},
		{Matcher: access.Matcher{UID: "7"}, Nodes: []string{"default.web"}}}})
	if err != nil {
		t.Fatal(err)
	}
	peer := func(uid uint32) *access.Peer {
		return &access.Peer{Local: true, UID: uid, GID: group, Cgroup: "/system.slice/sshd.service"}
	}
	unit := access.Pins{Unit: "envoy@web.service"}
	for _, c := range []struct {
		name     string
		by       *access.Proxies
		uid      uint32
		id       string
		pins     access.Pins
		allowed  bool
		untested string
	}{
		{"a unit", byDefault, 7, "default.web", unit, true, "the label nearside.io/unit: envoy@web.service"},
		{"a unit and another user", byDefault, 7, "default.web", access.Pins{User: "8", Unit: unit.Unit}, false,
			"the label nearside.io/unit: envoy@web.service"},
		{"the user", byDefault, 7, "default.web", access.Pins{User: "7"}, true, ""},
		{"no pin", byDefault, 7, "default.web", access.Pins{}, false, ""},
		{"root", byDefault, 0, "default.web", unit, true, ""},
		{"a rule", rules, 7, "default.web", access.Pins{}, true, ""},
		{"a rule of another user", rules, 8, "default.web", access.Pins{}, false, "xds.access[0], which has a cgroup"},
	} {
		_, untested, err := c.by.Examine(peer(c.uid), access.Target{ID: c.id, Stored: true, Pins: c.pins})
		if (err == nil) != c.allowed || strings.Join(untested, ", ") != c.untested {
			t.Errorf("%s: %v, untested %q", c.name, err, untested)
		}
	}
}
