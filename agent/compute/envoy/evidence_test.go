package envoy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/envoyask"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// evidencePage is the file with the evidence that each rule of the check is needed.
const evidencePage = "testdata/rules-evidence.md"

// fuzzCounts is the file that TestEnvoyFuzz writes.
const fuzzCounts = "../../answer/envoybin/testdata/fuzz-rules.tsv"

// TestRulesEvidence checks that the evidence page has a row for each rule. With RULES_EVIDENCE=1 it
// counts the inputs in which each rule fires, lets an Envoy validate the bad configs of TestRules,
// and writes the page. The counts of fuzz inputs are those that TestEnvoyFuzz wrote with the same
// variable set.
func TestRulesEvidence(t *testing.T) {
	if os.Getenv("RULES_EVIDENCE") != "" {
		if err := os.WriteFile(evidencePage, []byte(evidence(t)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(evidencePage)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range finding.Rules() {
		row := fmt.Sprintf("\n| %d | %s | %s |", r.Number, r.Severity, r.Title)
		if r.Unchecked == "" && !strings.Contains(string(page), row) {
			t.Errorf("testdata/rules-evidence.md lacks rule %d, %s; RULES_EVIDENCE=1 writes the page", r.Number, r.Title)
		}
	}
}

// evidence returns the expected content of the evidence page.
func evidence(t *testing.T) string {
	const shared = "../../../../shared/conformance/"
	cases := slices.Concat(kindtest.OwnInputs(t), kindtest.ConformanceInputs(t))
	var random []kindtest.MeshInput
	for _, pattern := range []string{"random/*/*.yaml", "random-2.14/*/*.yaml"} {
		files, _ := filepath.Glob(shared + pattern)
		for _, file := range files {
			if in, ok := inputOf(t, file, nil); ok {
				random = append(random, in)
			}
		}
	}
	documents := documentInputs(t)
	fired := []map[int]int{firedIn(t, cases), firedIn(t, random), firedIn(t, documents)}
	fuzz, fuzzed := readFuzzCounts(t)
	answers := askAboutRules(t)

	var b strings.Builder
	fmt.Fprintf(&b, `# Evidence for the rules of the check

This page shows, for each rule of docs/rules.md, how many inputs violate it, and whether Envoy 1.36.2 reports the
fault when it loads the config. TestLoadRules asks a running Envoy about each rule.
Such a fault is also found without the rule, by bisection of a rejected update.
`+"`RULES_EVIDENCE=1`"+` makes two tests write this page: `+"`ENVOY_FUZZ_N=%d go test ./agent/answer/envoybin -run TestEnvoyFuzz`"+`, and then
`+"`go test ./agent/compute/envoy -run TestRulesEvidence`"+`.

- cases: %d meshes of the tests of kinds and of the generator, of the conformance cases, and of the examples.
- random: %d random meshes of the conformance suite that this version can read.
- documents: %d YAML documents of this manual, each with the resources of the quick start.
- fuzz: %d odd but plausible configs. Alone: those in which no other rule withholds a resource (but 31, whose cluster
  another rule withholds), and how many of them the Envoy rejects.
- bad configs: a good config with one fault, for each fault that the tests of the rule have, and how many of them the
  Envoy rejects in its validate mode.
- Envoy names it: **yes**, each bad config is rejected; **some**, not each; **no**, none, although the severity says
  that Envoy rejects the resource: validate mode does not update resources, bind addresses, or open logs, has no runtime
  limit, and finds routes, endpoints, and secrets in the config, not over xDS; **not at load**, none, and Envoy loads
  such a config and can never use it, or uses it differently than the config suggests.

| rule | severity | title | cases | random | documents | fuzz | alone: rejected | bad configs: rejected | Envoy names it |
|---|---|---|---|---|---|---|---|---|---|
`, fuzzed, len(cases), len(random), len(documents), fuzzed)
	total := map[string]int{}
	for _, r := range finding.Rules() {
		if r.Unchecked != "" {
			continue
		}
		a, f := answers[r.Number], fuzz[r.Number]
		total[a.verdict(r.Severity)]++
		if fired[0][r.Number]+fired[1][r.Number]+fired[2][r.Number]+f[0] == 0 {
			total["never"]++
			if a.verdict(r.Severity) == "yes" {
				total["never, yes"]++
			}
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %d | %d | %d | %d | %d: %d | %d: %d | %s |\n", r.Number, r.Severity, r.Title,
			fired[0][r.Number], fired[1][r.Number], fired[2][r.Number], f[0], f[1], f[2], a.asked, a.rejected,
			a.verdict(r.Severity))
	}
	fmt.Fprintf(&b,
		"\nEnvoy names the fault of %d rules, of %d in some forms, of %d not, and of %d not at load. %d rules "+
			"fire in no input but the\nbad configs of their tests; Envoy names the fault of %d of these.\n", total["yes"],
		total["some"], total["no"], total["not at load"], total["never"], total["never, yes"])
	return b.String()
}

// firedIn counts the inputs in which each rule fires.
func firedIn(t *testing.T, inputs []kindtest.MeshInput) map[int]int {
	facts := &finding.Facts{StaticClusters: bootstrap.StaticClusters(), SecretsLater: true}
	out := map[int]int{}
	var c check.Checker
	for _, in := range inputs {
		rules := map[int]bool{}
		in.Proxies(t, node.FlavorEnvoy, func(p *generate.Proxy) {
			for _, f := range c.Check(nil, p.Snapshot(), facts) {
				rules[f.Rule] = true
			}
		})
		for r := range rules {
			out[r]++
		}
	}
	return out
}

// inputOf decodes a file of resources, and returns false if it is empty or has faults.
func inputOf(t *testing.T, name string, data []byte) (kindtest.MeshInput, bool) {
	if data == nil {
		var err error
		if data, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if rs, faults := kinds.Registry().Decode(name, data); len(faults) > 0 || len(rs) == 0 {
		return kindtest.MeshInput{}, false
	}
	return kindtest.InputOf(t, name, data), true
}

// documentInputs returns the resources of the YAML blocks in the documentation.
func documentInputs(t *testing.T) []kindtest.MeshInput {
	var base []byte
	files, err := filepath.Glob("../../../examples/quickstart/resources/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		base = append(append(base, data...), "\n---\n"...)
	}
	var out []kindtest.MeshInput
	pages, _ := filepath.Glob("../../../docs/*.md")
	for _, page := range append(pages, "../../../README.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(data), "\n```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "\n```")
			if in, ok := inputOf(t, fmt.Sprintf("%s %d", page, i), append(slices.Clone(base), block...)); ok {
				out = append(out, in)
			}
		}
	}
	return out
}

// readFuzzCounts returns the number of fuzz inputs. counts has three numbers for each rule: the
// inputs in which it fired, those in which only this rule fired, and those of the latter that Envoy
// rejected.
func readFuzzCounts(t *testing.T) (counts map[int][3]int, inputs int) {
	text, err := os.ReadFile(fuzzCounts)
	if err != nil {
		t.Fatal(err)
	}
	counts = map[int][3]int{}
	for line := range strings.Lines(string(text)) {
		var rule int
		var n [3]int
		if k, _ := fmt.Sscanf(line, "inputs %d", &inputs); k == 1 {
			continue
		}
		if _, err := fmt.Sscanf(line, "%d\t%d\t%d\t%d", &rule, &n[0], &n[1], &n[2]); err != nil {
			t.Fatalf("%s: %q: %v", fuzzCounts, line, err)
		}
		counts[rule] = n
	}
	return counts, inputs
}

// answer counts the bad configs of a rule that an Envoy was asked to validate, and those that it
// rejected.
type answer struct{ asked, rejected int }

func (a answer) verdict(s finding.Severity) string {
	switch {
	case a.asked > 0 && a.rejected == a.asked:
		return "yes"
	case a.rejected > 0:
		return "some"
	case s == finding.Reject:
		return "no"
	}
	return "not at load"
}

// askAboutRules lets an Envoy validate the bad configs of all rules.
func askAboutRules(t *testing.T) map[int]answer {
	e := envoyask.Find(t)
	certificate, key := keyPair(t)
	try := func(b *base) bool {
		_, next := sealBase(t, b, certificate, key)
		found, err := e.TrySnapshot(t.Context(), "default", "x", next)
		if err != nil {
			t.Logf("not asked: %v", err)
		}
		return len(found) > 0 || err != nil && strings.Contains(err.Error(), "not asked")
	}
	if try(newBase(certificate, key)) {
		t.Fatal("the Envoy rejects the good config")
	}
	out := map[int]answer{}
	for _, c := range ruleCases() {
		b := newBase(certificate, key)
		c.breaks(b)
		a := out[c.rule]
		a.asked++
		if try(b) {
			a.rejected++
		} else {
			t.Logf("loaded: rule %d %s", c.rule, c.name)
		}
		out[c.rule] = a
	}
	return out
}
