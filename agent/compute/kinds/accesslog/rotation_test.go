package accesslog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
)

// nodePaths returns the log paths of a node.
func nodePaths(rotation string) *logpaths.Rules {
	c := new(config.Config)
	c.Paths.Logs, c.Paths.Run, c.Paths.State = "/var/log/nearside", "/run/nearside", "/var/lib/nearside"
	c.AccessLog.Rotation = rotation
	c.AccessLog.Receivers = []config.Receiver{{Name: "main", File: "/var/log/nearside/access/main.log"}}
	return logpaths.NewRules(c)
}

// TestWriters checks who writes the file of a backend, and the warnings.
func TestWriters(t *testing.T) {
	const inside, outside = "/var/log/nearside/access/web.log", "/tmp/web.log"
	for _, c := range []struct{ mode, path, rotation, want, warning string }{
		{"", inside, "", "envoy", ""}, {"", outside, "{}", "agent", ""},
		{"always", inside, "", "agent or envoy", ""}, {"always", inside, "{maxFiles: 3}", "agent", ""},
		{"always", inside, "none", "envoy", ""}, {"always", outside, "none", "envoy", ""},
		{"always", outside, "", "envoy", ""}, {"policy", outside, "", "envoy", ""},
		{"always", "/dev/stdout", "", "envoy", ""}, {"policy", inside, "", "envoy", ""},
		{"policy", inside, "{}", "agent", ""}, {"none", inside, "{}", "envoy", "accessLog.rotation is none"},
		{"always", "/var/log/nearside/audit/x", "none", "", "contains the audit log"},
		{"always", "/var/log/nearside/access/../audit/x", "none", "", "contains the audit log"},
		{"none", "/run/nearside/access/nearside-x.fifo", "", "", "paths.run"},
		{"policy", "/var/log/nearside/access/main.log", "", "", "the receiver main"},
	} {
		backend := "{type: File, file: {path: " + c.path + "}}"
		if c.rotation != "" {
			backend = "{type: File, file: {path: " + c.path + ", rotation: " + c.rotation + "}}"
		}
		ctx, h := contextOf(t,
			withoutMTLS+dataplane+from("p", "{targetRef: {kind: Mesh}, default: {backends: ["+backend+"]}}"))
		if c.mode != "" {
			ctx.Paths = nodePaths(c.mode)
		}
		message := &hcmv3.HttpConnectionManager{}
		d := &draft.Draft{Listeners: []*draft.Listener{{Kind: draft.Inbound, Message: &listenerv3.Listener{},
			Chains: []*draft.Chain{{HTTP: &draft.HTTP{Message: message}}}}}}
		accesslog.Plugin().Apply(ctx, d)
		got := ""
		switch {
		case len(d.Pipes) == 1 && d.Pipes[0].Fallback:
			got = "agent or envoy"
		case len(d.Pipes) == 1:
			got = "agent"
		case len(message.AccessLog) == 1:
			got = "envoy"
		}
		warned := strings.Join(h.warnings, "; ")
		if got != c.want || (warned == "") != (c.warning == "") || !strings.Contains(warned, c.warning) {
			t.Errorf("%s %s %s: written by %q, warned %q; want %q, %q", c.mode, c.path, c.rotation, got, warned,
				c.want, c.warning)
		}
	}
}

// TestRotationText checks both forms of rotation, and that they are stored in the same form.
func TestRotationText(t *testing.T) {
	for form, want := range map[string]string{
		"none": `"none"`, "{}": `{}`, "{maxFiles: 2}": `{"maxFiles":2}`,
		"all": "give limits", "{maxFile: 2}": "maxFile", "[]": "",
	} {
		rs, faults := kinds.Registry().Decode("x.yaml", []byte("type: MeshAccessLogBackend\nmesh: default\nname: x\n"+
			"spec: {name: x, type: File, file: {path: /x, rotation: "+form+"}}\n"))
		if len(faults) > 0 || len(rs) == 0 {
			if !strings.Contains(fmt.Sprint(faults), want) || strings.HasPrefix(want, "{") || strings.HasPrefix(want, `"`) {
				t.Errorf("%s: %v", form, faults)
			}
			continue
		}
		b, err := json.Marshal(rs[0].Spec.(*accesslog.BackendSpec).File.Rotation)
		if err != nil || string(b) != want {
			t.Errorf("%s is stored as %s: %v", form, b, err)
		}
	}
}
