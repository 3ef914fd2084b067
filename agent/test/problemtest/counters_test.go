package problemtest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var (
	counterRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)(?:\\{([a-z_,]+)\\})?` \\| counter \\| (.*) \\|$")
	quoted     = regexp.MustCompile("`([a-z-]+)`")
)

// TestCountersFromTheStart checks that a new agent exports every documented counter, with every
// documented reason. Otherwise the first event would not be an increase.
func TestCountersFromTheStart(t *testing.T) {
	text, err := os.ReadFile("../../../docs/metrics.md")
	agenttest.Do(t, err)
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{}, "dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1",
		"gossip.bind=127.0.0.1:0", "gossip.insecure=true",
		// Without these files, the webhook has its counters and is not served.
		"webhook.listen=127.0.0.1:0", "webhook.tls.cert=cert.pem", "webhook.tls.key=key.pem",
		`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: a.log}]`)
	series := slices.Collect(maps.Keys(samples(t, r)))
	has := func(parts ...string) bool {
		return slices.ContainsFunc(series, func(s string) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
		})
	}
	rows := counterRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("docs/metrics.md has %d counters", len(rows))
	}
	for _, row := range rows {
		if !has(row[1]) {
			t.Errorf("%s is missing", row[1])
		}
		if !slices.Contains(strings.Split(row[2], ","), "reason") {
			continue
		}
		_, reasons, ok := strings.Cut(row[3], "reason is ")
		if !ok {
			reasons = row[3]
		}
		for _, m := range quoted.FindAllStringSubmatch(reasons, -1) {
			if !has(row[1], `reason="`+m[1]+`"`) {
				t.Errorf("%s has no reason %s", row[1], m[1])
			}
		}
	}
}
