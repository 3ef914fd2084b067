package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestWeakenedDefaults checks that status reports settings that are less secure than the defaults.
func TestWeakenedDefaults(t *testing.T) {
	for set, want := range map[string]string{
		"api.socket.mode=0666":                       "api.socket.mode 0666 lets every user of the node connect and read",
		"xds.socket.mode=0666":                       "xds.socket.mode 0666 lets every user of the node connect",
		"xds.access=[]":                              "xds.access is []",
		"api.roles=[]":                               "api.roles is []",
		`xds.access=[{user: "61002", nodes: ["*"]}]`: "xds.access[0] lets peers with user 61002 connect as any proxy",
		`xds.access=[{cgroup: /a.slice, nodes: [a.b], bring: true, services: ["*"]}]`: "xds.access[0] lets " +
			"peers with cgroup /a.slice bring a Dataplane of any service",
		`xds.access=[{user: no-such-user, nodes: [a.b]}]`:                             `the user "no-such-user" does not exist`,
		`api.roles=[{name: a, template: viewer, subjects: [{group: no-such-group}]}]`: `the group "no-such-group" does not exist`,
		"gossip.bind=127.0.0.1:0&gossip.insecure=true": "gossip.insecure is true: every host that reaches " +
			"127.0.0.1:0 may change all resources",
		"xds.unpinned=allow":  "xds.unpinned is allow: every Envoy in the group of xds.socket gets the config and keys",
		"xds.tcp=127.0.0.1:0": "xds.tcp accepts tokens in plain text",
		"xds.access=[{user: root, nodes: ['*'], bring: true, services: ['*']}]":           "",
		"xds.access=[{user: \"61002\", nodes: [a.b], bring: true, services: [web]}]":      "",
		"api.roles=[{name: a, template: viewer, subjects: [{user: root}, {uid: \"7\"}]}]": "",
	} {
		t.Run(set, func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, settings(set)...)
			s, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			var got []string
			for _, c := range s.Checks {
				if c.Name == "access" {
					got = append(got, c.Reason)
				}
			}
			if want != "" && !strings.Contains(strings.ReplaceAll(r.Logs.String(), `\"`, `"`), want) {
				t.Errorf("the log does not have %q: %s", want, r.Logs)
			}
			if (len(got) > 0) != (want != "") || !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("status has %q, want %q", got, want)
			}
		})
	}
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "xds.tcp=127.0.0.1:0", "xds.insecure=true")
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	if !slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
		return p.Check == "access" && strings.Contains(p.Reason, "xds.insecure is true")
	}) {
		t.Errorf("insecure: %+v", s.Problems)
	}
}

// settings splits settings that are separated by &.
func settings(s string) []string { return strings.Split(s, "&") }
