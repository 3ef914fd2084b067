package agent_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestLogsOfAllNodes reads the audit logs of a pool: a node that shares logs answers, and a node
// that does not is named.
func TestLogsOfAllNodes(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String(), "accessLog.share=true")
	pooled(t, agenttest.ShortDir(t), "c", a.Addrs().Gossip.String())
	agenttest.Apply(t, b.Agent, "type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s"))
	has(t, a, poolTimeout, "gossip:b")
	_, err := b.Api().Status(t.Context())
	agenttest.Do(t, err)
	agenttest.Eventually(t, "the audit event of b arrives, and c refuses", func() bool {
		got, err := a.Api().Raw(t.Context(), "/v1/logs", url.Values{"log": {"audit"}, "allNodes": {"true"}})
		agenttest.Do(t, err)
		lines := strings.Split(strings.TrimSpace(string(got)), "\n")
		var last struct{ End api.LogEnd }
		agenttest.Do(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
		return strings.Contains(string(got), `{"node":"a",`) && strings.Contains(string(got), `{"node":"b",`) &&
			!strings.Contains(string(got), `{"node":"c",`) && last.End.Lines == len(lines)-1 &&
			fmt.Sprint(last.End.Unanswered) == "[{c accessLog.share is not set there}]"
	})
}
