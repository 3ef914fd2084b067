package problemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const rulesFile = "../../../packaging/observability/alerts.yaml"

// alertCase is one test of alerting rules: series in the notation of promtool, with one sample per
// minute, and the alerts that do or do not fire within an hour.
type alertCase struct {
	name   string
	series map[string]string
	fires  map[string]bool
}

// promtool returns the path of promtool, or "".
func promtool() string {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if dir := os.Getenv("NEARSIDE_CI_CACHE"); dir != "" {
		cache, err = dir, nil
	} else {
		cache = filepath.Join(cache, "nearside-ci")
	}
	path := filepath.Join(cache, "prometheus/usr/bin/promtool")
	if _, missing := os.Stat(path); err != nil || missing != nil {
		return ""
	}
	return path
}

// testAlerts evaluates the alerting rules for all cases at once: each case is an instance, because
// promtool needs 0.1 s per test. All rules keep the label.
func testAlerts(t *testing.T, cases []alertCase) {
	t.Helper()
	tool := promtool()
	if tool == "" {
		t.Skip("there is no promtool; .ci/install-promtool installs it")
	}
	rules, err := filepath.Abs(rulesFile)
	agenttest.Do(t, err)
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type expr struct {
		Expr    string   `yaml:"expr"`
		At      string   `yaml:"eval_time"`
		Samples []sample `yaml:"exp_samples"`
	}
	type series struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type test struct {
		Name     string   `yaml:"name"`
		Interval string   `yaml:"interval"`
		Input    []series `yaml:"input_series"`
		Exprs    []expr   `yaml:"promql_expr_test"`
	}
	var doc struct {
		Rules    []string `yaml:"rule_files"`
		Interval string   `yaml:"evaluation_interval"`
		Tests    []test   `yaml:"tests"`
	}
	doc.Rules, doc.Interval = []string{rules}, "1m"
	x := test{Name: t.Name(), Interval: "1m"}
	for _, c := range cases {
		for name, values := range c.series {
			metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if labels != "" {
				labels = "," + labels
			}
			x.Input = append(x.Input, series{fmt.Sprintf("%s{instance=%q%s}", metric, c.name, labels), values})
		}
		for alert, fires := range c.fires {
			value := 0.0
			if fires {
				value = 1
			}
			x.Exprs = append(x.Exprs, expr{Expr: fmt.Sprintf("count(max_over_time(ALERTS{alertname=%q,"+
				"alertstate=\"firing\",instance=%q}[2h])) > bool 0 or vector(0)", alert, c.name), At: "40m",
				Samples: []sample{{"{}", value}}})
		}
	}
	doc.Tests = []test{x}
	text, err := yaml.Marshal(doc)
	agenttest.Do(t, err)
	file := filepath.Join(t.TempDir(), "alerts_test.yaml")
	agenttest.Write(t, file, string(text))
	if out, err := exec.Command(tool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, strings.TrimSpace(string(out)))
	}
}

// alerts returns the names of all alerts.
func alerts(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	agenttest.Do(t, err)
	var doc struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	agenttest.Do(t, yaml.Unmarshal(text, &doc))
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			out = append(out, r.Alert)
		}
	}
	return out
}
