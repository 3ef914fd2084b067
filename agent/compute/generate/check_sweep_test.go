package generate_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// findingLine formats a finding as one line.
func findingLine(f finding.Finding) string {
	return fmt.Sprintf("%v %d %s/%s%s: %s", f.Severity, f.Rule, short(f.Type), f.Resource, f.Pointer, f.Message)
}

// checked checks a proxy's config as its first config, and as an update of each config in accepted.
// It fails if an update has a finding that the first config does not have.
func checked(t *testing.T, c *check.Checker, p *generate.Proxy, accepted map[string]*draft.Sealed) []string {
	t.Helper()
	lines := func(from *draft.Sealed) []string {
		var out []string
		for _, f := range p.Check(c, from) {
			out = append(out, findingLine(f))
		}
		return out
	}
	start := lines(nil)
	for name, from := range accepted {
		for _, line := range lines(from) {
			// Rule 90 reports that the update removes a resource that is in use. For the first
			// config, the same fault is a missing resource.
			if !slices.Contains(start, line) && !strings.HasPrefix(line, "unusable 90 ") {
				t.Errorf("%s, coming from %s: %s", p.Name, name, line)
			}
		}
	}
	return start
}

// sweep checks every proxy of an input, both with a shared checker and with a new one for each
// proxy. It returns the findings as lines that start with the proxy's name.
func sweep(t *testing.T, shared *check.Checker, in kindtest.MeshInput) (lines []string, proxies int) {
	t.Helper()
	bare := map[string]*draft.Sealed{}
	in.WithoutPolicies().Proxies(t, node.FlavorEnvoy, func(p *generate.Proxy) { bare[p.Mesh+"."+p.Name] = p.Sealed })
	in.Proxies(t, node.FlavorEnvoy, func(p *generate.Proxy) {
		proxies++
		accepted := map[string]*draft.Sealed{"itself": p.Sealed}
		if from := bare[p.Mesh+"."+p.Name]; from != nil {
			accepted["no policies"] = from
		}
		found := checked(t, shared, p, accepted)
		if d := cmp.Diff(found, checked(t, &check.Checker{}, p, nil)); d != "" {
			t.Errorf("%s %s: a checker that has seen other proxies finds something else (-shared +own):\n%s", in.Name, p.Name, d)
		}
		for _, f := range found {
			lines = append(lines, p.Name+" "+f)
		}
	})
	slices.Sort(lines)
	return slices.Compact(lines), proxies
}

const expectedFindings = "testdata/check/findings.txt"

// TestCheckOfOwnInputs checks the config of every proxy of every input in the repository. The
// golden file lists the expected findings. Read every line of it after an update: each finding must
// be a fault of the input, for example a patch that removes a cluster that is in use.
// UPDATE_GOLDEN=1 rewrites the file.
func TestCheckOfOwnInputs(t *testing.T) {
	var b bytes.Buffer
	var shared check.Checker
	total := 0
	for _, in := range kindtest.OwnInputs(t) {
		lines, n := sweep(t, &shared, in)
		total += n
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s\n", strings.TrimPrefix(in.Name, "../../"))
		for _, line := range lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	if total < 300 {
		t.Errorf("only %d configs were checked", total)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(expectedFindings, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(expectedFindings)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("findings, UPDATE_GOLDEN=1 takes them over (-want +got):\n%s", d)
	}
}

// TestCheckOfConformanceInputs checks that the reference cases have only one finding, which does
// not block: a domain that Envoy accepts and never matches.
func TestCheckOfConformanceInputs(t *testing.T) {
	var shared check.Checker
	for _, in := range kindtest.ConformanceInputs(t) {
		lines, n := sweep(t, &shared, in)
		if n == 0 && strings.Contains(string(in.Documents()), "Dataplane") {
			t.Errorf("%s: no proxy was checked", in.Name)
		}
		for _, line := range lines {
			if !strings.Contains(line, `warning 5 Listener/outbound:passthrough:ipv`) ||
				!strings.Contains(line, `"*.example.*" has a second *`) {
				t.Errorf("%s: %s", in.Name, line)
			}
		}
	}
}

// TestCheckOfLargeMesh checks that the mesh of the benchmarks has no findings. It also checks the
// output of the benchmark script, if that script is available.
func TestCheckOfLargeMesh(t *testing.T) {
	inputs := []kindtest.MeshInput{{Name: "large", Resources: append(bigMesh(100, 2), policies(t, 5)...)}}
	const script = "../../../../shared/bench/xds/gen.py"
	if _, err := os.Stat(script); err == nil {
		if out, err := exec.Command("python3", script, "100", "--local", "2").Output(); err == nil {
			inputs = append(inputs, kindtest.InputOf(t, script, out))
		} else {
			t.Logf("%s does not run: %v", script, err)
		}
	}
	for _, in := range inputs {
		lines, n := sweep(t, &check.Checker{}, in)
		if n != 203 || len(lines) > 0 {
			t.Errorf("%s: %d proxies, %d findings: %.1000q", in.Name, n, len(lines), lines)
		}
	}
}
