package traffictest_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// command runs a command with the API of the machine's agent.
func (m *machine) command(args ...string) {
	m.t.Helper()
	var out bytes.Buffer
	args = append(args, "--socket", filepath.Join(m.dir, "run", "nearside.sock"))
	if code := cli.Main(command.Program{}, args, strings.NewReader(""), &out, &out, nil); code != 0 {
		m.t.Fatalf("nearside %s: exit code %d:\n%s", strings.Join(args, " "), code, out.String())
	}
}

// TestTrustUnderTraffic checks that no request fails while a pool of five machines moves from the
// mode off over warn to enforce, that policies reach all Envoys in each mode, and that an agent
// returns to the enforced pool.
func TestTrustUnderTraffic(t *testing.T) {
	t.Parallel()
	p := startPool(t, 5)
	first := p.all[0]
	for _, m := range p.all {
		for _, o := range p.all {
			m.await("an answer of "+o.name, func() bool {
				who, err := m.ask(ownPort+o.n, time.Second)
				return err == nil && who == o.name
			})
		}
	}
	for _, m := range p.all {
		m.startLoad()
	}
	root, document := filepath.Join(first.dir, "root.key"), filepath.Join(first.dir, "trust.yaml")
	steps := [][]string{
		{"trust", "init", "--root-key", root, "--operator-key", filepath.Join(first.dir, "operator.key"), "-f", document},
		{"trust", "mode", trust.ModeWarn, "--root", root},
		{"trust", "mode", trust.ModeEnforce, "--root", root},
	}
	for i, step := range steps {
		first.command(step...)
		for _, m := range p.all {
			m.await("the trust file", func() bool {
				x, err := m.api.Trust(t.Context())
				return err == nil && x.File != nil && x.File.Version == uint64(i+1) && len(x.Refused) == 0
			})
		}
		p.say("%s", strings.Join(step[:3], " ")+" is in force on all nodes")
		for j, m := range p.all { // each node may write
			value := string(rune('1'+i)) + "." + string(rune('1'+j)) + "11s"
			m.apply(timeoutOf("all", value))
			for _, o := range p.all {
				o.config(value)
			}
		}
		for _, m := range p.all {
			m.more(50)
		}
	}
	last := p.all[4]
	last.killAgent()
	last.startAgent(2)
	last.apply(timeoutOf("all", "7.777s"))
	for _, m := range p.all {
		m.config("7.777s")
		m.more(25)
	}
	if n := failures(p.all); n != 0 {
		t.Errorf("%d requests failed", n)
	}
	p.say("an agent has returned to the enforced pool, and no request failed")
}
