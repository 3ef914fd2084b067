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

// TestRefusedStreamStoresNothing checks that the Dataplane of a refused stream does not reach the
// store: one that is pinned to another user, and one with a service of another.
func TestRefusedStreamStoresNothing(t *testing.T) {
	person := agenttest.People(t)
	r := agenttest.Up(t, openDir(t), agent.Deps{}, "xds.socket.group=", "xds.socket.mode=0666",
		`xds.access=[{uid: "61002", nodes: ["default.*"], bring: true, services: [web]}]`)
	agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n")
	before := r.Store().Snapshot().Revision()
	bring := func(id, dataplane string) agenttest.Act {
		return agenttest.Act{Do: "xds", Socket: r.Addrs().XDS, NodeID: "default." + id, Dataplane: dataplane}
	}
	acts := []agenttest.Act{
		bring("user", broughtBy("user", "web", `,"labels":{"nearside.io/user":"61003"}`)),
		bring("unit", broughtBy("unit", "web", `,"labels":{"nearside.io/unit":"other.service"}`)),
		bring("pod", broughtBy("pod", "web", `,"labels":{"nearside.io/pod":"0a1b"}`)),
		bring("other", broughtBy("other", "payments", "")),
	}
	for i, got := range person(ruled).Try(acts...) {
		if got.Got != "PermissionDenied" {
			t.Errorf("%s: %s (%s)", acts[i].NodeID, got.Got, got.Detail)
		}
	}
	if now := r.Store().Snapshot().Revision(); now != before {
		t.Errorf("the revision of the store is %d after refused streams, was %d", now, before)
	}
	got := person(ruled).Try(bring("own", broughtBy("own", "web", `,"labels":{"nearside.io/user":"61002"}`)))
	if got[0].Got == "PermissionDenied" {
		t.Errorf("a Dataplane that is pinned to its peer: %s", got[0].Detail)
	}
}
