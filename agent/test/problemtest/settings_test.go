package problemtest

import (
	"os"
	"path/filepath"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// settingFaults are weakened defaults and faults of sockets.
var settingFaults = []fault{
	{name: "API for every user", set: []string{"api.socket.mode=0666"}, check: "access", severity: warn,
		cause: "api.socket.mode 0666 lets every user of the node connect and read"},
	{name: "xDS for every user", set: []string{"xds.socket.mode=0666"}, check: "access", severity: warn,
		cause: "xds.socket.mode 0666 lets every user"},
	{name: "no proxies", set: []string{"xds.access=[]"}, check: "access", severity: warn, cause: "xds.access is []"},
	{name: "no roles", set: []string{"api.roles=[]"}, check: "access", severity: warn, cause: "api.roles is []"},
	{name: "any proxy", set: []string{`xds.access=[{user: "61002", nodes: ["*"]}]`}, check: "access", severity: warn,
		cause: "xds.access[0] lets peers with user 61002 connect as any proxy"},
	{name: "any service", set: []string{`xds.access=[{cgroup: /a.slice, nodes: [a.b], bring: true, services: ["*"]}]`},
		check: "access", severity: warn, cause: "bring a Dataplane of any service"},
	{name: "unknown user", set: []string{`xds.access=[{user: no-such-user, nodes: [a.b]}]`}, check: "access",
		severity: warn,
		cause:    `the user "no-such-user" does not exist`},
	{name: "unknown group", set: []string{`api.roles=[{name: a, template: viewer, subjects: [{group: no-such-group}]}]`},
		check: "access", severity: warn, cause: `the group "no-such-group" does not exist`},
	{name: "open pool", set: []string{"gossip.bind=127.0.0.1:0", "gossip.insecure=true"}, check: "access", severity: warn,
		cause: "gossip.insecure is true"},
	{name: "unpinned proxies", set: []string{"xds.unpinned=allow"}, check: "access", severity: warn,
		cause: "xds.unpinned is allow"},
	{name: "tokens in plain text", set: []string{"xds.tcp=127.0.0.1:0"}, check: "access", severity: warn,
		cause: "xds.tcp accepts tokens in plain text"},
	{name: "one group for both sockets", set: []string{"api.socket.mode=0660", "api.socket.group=61000",
		"xds.socket.group=61000"}, check: "groups", severity: bad, cause: "the group 61000 may use both"},
	{name: "API socket is open", after: func(w *world) {
		agenttest.Do(w.t, os.Chmod(w.dir, 0o755), os.Chmod(filepath.Dir(w.Addrs().API), 0o755),
			os.Chmod(w.Addrs().API, 0o666))
	}, check: "api-socket", severity: warn, cause: "every user of the host may read all resources", names: "srw-rw-rw-"},
	{name: "API socket is closed", after: func(w *world) {
		agenttest.Do(w.t, os.Chmod(w.Addrs().API, 0o400))
	}, check: "api-socket", severity: bad, cause: "mode 0400: no user can connect", names: "sr--------"},
	{name: "xDS socket is closed", after: func(w *world) {
		agenttest.Do(w.t, os.Chmod(w.Addrs().XDS, 0o400))
	}, check: "xds-socket", severity: bad, cause: "mode 0400: no user can connect", names: "sr--------"},
	{name: "xDS socket is gone", after: func(w *world) {
		agenttest.Do(w.t, os.Remove(w.Addrs().XDS))
	}, check: "xds-socket", severity: bad, cause: "no program can connect any more"},
	{name: "xDS socket is a file", after: func(w *world) {
		agenttest.Do(w.t, os.Remove(w.Addrs().XDS))
		agenttest.Write(w.t, w.Addrs().XDS, "")
	}, check: "xds-socket", severity: bad, cause: "is not a socket any more", names: "-rw"},
	{name: "no Envoy", before: func(w *world) { w.deps.EnvoyBin = filepath.Join(w.dir, "no-envoy") }, check: "envoy",
		severity: warn, cause: "no-envoy"},
	{name: "no holder of sockets", file: "{type: Mesh, name: default}", set: []string{"dns.listen=127.0.0.1:0"},
		check: "dns-sockets", severity: warn, cause: "nothing holds the sockets"},
	{name: "dead upstream", file: "{type: Mesh, name: default}", set: []string{"dns.listen=127.0.0.1:0",
		"dns.upstreams=127.0.0.1:1"}, after: func(w *world) { w.query() }, check: "dns", severity: warn,
		cause: "no upstream responds", repeats: true, alerts: "NearsideUpstreamsDown NearsideUpstreamsFail"},
	{name: "dead upstream without a mesh", set: []string{"dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1"},
		after: func(w *world) { w.query() }, check: "dns", severity: warn, cause: "no upstream responds"},
	{name: "damaged DNS views", file: "{type: Mesh, name: default}", set: []string{"dns.listen=127.0.0.1:0"},
		before: func(w *world) {
			agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "state"), 0o750))
			agenttest.WriteSecret(w.t, filepath.Join(w.dir, "state/dns-views.json"), "no views")
		}, check: "dns", severity: warn, cause: "the DNS views of the last run are unknown", names: "dns-views.json"},
	{name: "broken record of a redirection", before: func(w *world) {
		dir := filepath.Join(w.dir, "run/intercept")
		agenttest.Do(w.t, os.MkdirAll(dir, 0o750))
		agenttest.Write(w.t, filepath.Join(dir, "7.json"), "{")
	}, check: "intercept-record", severity: warn, cause: "7.json"},
}
