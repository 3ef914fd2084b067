package mesh_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

func TestWebSockets(t *testing.T) {
	for _, x := range []struct {
		labels string
		want   bool
		warns  string
	}{
		{"", false, ""},
		{`labels: {other: "true"}, `, false, ""},
		{`labels: {nearside.io/websockets: "true"}, `, true, ""},
		{`labels: {nearside.io/websockets: "false"}, `, false, ""},
		{`labels: {nearside.io/websockets: "yes"}, `, false, `"yes" is neither true nor false`},
	} {
		v := build(t, "{type: Mesh, "+x.labels+"name: default}\n")
		if v.WebSockets != x.want {
			t.Errorf("%s: %v, want %v", x.labels, v.WebSockets, x.want)
		}
		var text string
		for _, w := range v.Warnings {
			text += w.Reason
		}
		if x.warns == "" && strings.Contains(text, mesh.LabelWebSockets) || !strings.Contains(text, x.warns) {
			t.Errorf("%s: the warnings are %q, want %q", x.labels, text, x.warns)
		}
	}
}
