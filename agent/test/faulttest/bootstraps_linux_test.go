package faulttest_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestBootstraps tests bootstraps that do not fit the agent, which "check --bootstrap" names.
func TestBootstraps(t *testing.T) {
	t.Parallel()
	n := newNode(t, "xds.socket.mode=0666")
	n.file("base.yaml", base)
	n.start()
	s := n.command("nearside bootstrap --name web")
	if s.code != 0 {
		t.Fatal(s)
	}
	closed := n.path("closed")
	agenttest.Do(t, os.Mkdir(closed, 0o700), os.Symlink(n.path("run", "xds.sock"), closed+"/xds.sock"))
	for fault, x := range map[string]struct {
		old, new, flags string
		says            []string
	}{
		"wrong socket path": {n.path("run", "xds.sock"), n.path("run", "xsd.sock"), "",
			[]string{n.path("run", "xsd.sock"), n.path("run", "xds.sock")}},
		"directory of another": {n.path("run", "xds.sock"), closed + "/xds.sock", "--user 4242", []string{closed, "4242"}},
		"wrong node id":        {"default.web", "default.wep", "", []string{"default.wep", "web"}},
		"refused user":         {"x", "x", "--user 4242", []string{"4242", "default.web"}},
		"missing admin address": {strconv.Quote(n.path("run", "envoy", "0", "default.web.sock")), `"/nowhere/a.sock"`, "",
			[]string{"/nowhere"}},
	} {
		t.Run(fault, func(t *testing.T) {
			n.write(n.path("boot.yaml"), strings.ReplaceAll(s.out, x.old, x.new))
			got := n.command("nearside check --bootstrap $DIR/boot.yaml " + x.flags)
			if got.code != 2 {
				t.Errorf("exit code %d", got.code)
			}
			agenttest.Contains(t, got.text, x.says...)
		})
	}
}
