package agent_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestOneGroupOfBothSockets checks that the log and the status report a group whose members may use
// both sockets, unless roles restrict it.
func TestOneGroupOfBothSockets(t *testing.T) {
	agenttest.People(t) // requires root, because only root can assign any group
	const own = "api.socket.mode=0660"
	for set, want := range map[string]bool{
		own + "&api.socket.group=61000&xds.socket.group=61000":                         true,
		own + "&api.socket.group=61000&xds.socket.group=61000&api.roles=[]":            false,
		own + "&api.socket.group=61000&xds.socket.group=61004":                         false,
		own + "&api.socket.group=61000&xds.socket.group=61000&xds.socket.mode=0600":    false,
		"api.socket.mode=0600&api.socket.group=61000&xds.socket.group=61000":           false,
		own + "&api.socket.group=61000&xds.socket.group=":                              false,
		own + "&api.socket.group=61000&xds.socket.group=61000&xds.access=[]":           true,
		own + "&api.socket.group=61000&xds.socket.group=61000&xds.unpinned=allow":      true,
		own + "&api.socket.group=nearside-no&xds.socket.group=nearside-no&dns.listen=": false,
	} {
		t.Run(set, func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, settings(set)...)
			s, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			got := ""
			for _, c := range s.Checks {
				if c.Name == "groups" && c.OK && c.Error {
					got = c.Reason
				}
			}
			const text = "the group 61000 may use both the API and the xDS socket"
			if strings.HasPrefix(got, text) != want || !s.Ready {
				t.Errorf("ready %v, status has %q", s.Ready, got)
			}
			if strings.Contains(r.Logs.String(), text) != want {
				t.Errorf("the log has: %s", r.Logs)
			}
		})
	}
}
