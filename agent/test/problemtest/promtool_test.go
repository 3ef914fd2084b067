package problemtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const rulesFile = "../../../packaging/observability/alerts.yaml"

// alertCase is one test of alerting rules: series in the notation of promtool, with one sample per
// minute, and the alerts that do or do not fire in the first 40 minutes.
type alertCase struct {
	name   string
	series map[string]string
	fires  map[string]bool
	quiet  bool // no other alert fires
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

// testAlerts evaluates the alerting rules for many cases at once: each case is an instance, because
// promtool needs 0.1 s per test. All rules keep the label. Each case has the labels of a host of
// docs/alerts.md, and again those of a pod of the PodMonitor.
func testAlerts(t *testing.T, cases []alertCase) {
	t.Helper()
	for some := range slices.Chunk(cases, 10) { // promtool reads at most 10,000 samples in a query
		testAlertsUntil(t, "40m", some)
	}
}

// testAlertsUntil is testAlerts with another time.
func testAlertsUntil(t *testing.T, at string, cases []alertCase) {
	t.Helper()
	input, want := map[string]string{}, map[string]bool{}
	for _, c := range cases {
		for _, target := range []map[string]string{{"job": "nearside", "instance": c.name}, podLabels(t, c.name+" (pod)")} {
			for name, values := range c.series {
				metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
				for _, l := range slices.Sorted(maps.Keys(target)) {
					labels += fmt.Sprintf(",%s=%q", l, target[l])
				}
				input[metric+"{"+strings.TrimPrefix(labels, ",")+"}"] = values
			}
			for alert, fires := range c.fires {
				want[firing(alert, target["instance"])] = fires
			}
			if !c.quiet {
				continue
			}
			for _, alert := range alerts(t) {
				want[firing(alert, target["instance"])] = false
			}
		}
	}
	evaluate(t, at, input, want)
}

// firing returns an expression: 1 if an alert of an instance has been firing, else 0.
func firing(alert, instance string) string {
	return fmt.Sprintf("count(max_over_time(ALERTS{alertname=%q,alertstate=\"firing\",instance=%q}[4h])) "+
		"> bool 0 or vector(0)", alert, instance)
}

// evaluate evaluates the alerting rules for series, and compares expressions with 1 or 0.
func evaluate(t *testing.T, at string, input map[string]string, want map[string]bool) {
	t.Helper()
	tool := promtool()
	if tool == "" {
		t.Skip("there is no promtool; .ci/install-promtool installs it")
	}
	rules, err := filepath.Abs(rulesFile)
	agenttest.Do(t, err)
	type object = map[string]any
	var series, exprs []object
	for _, name := range slices.Sorted(maps.Keys(input)) {
		series = append(series, object{"series": name, "values": input[name]})
	}
	for _, expr := range slices.Sorted(maps.Keys(want)) {
		value := 0
		if want[expr] {
			value = 1
		}
		exprs = append(exprs, object{"expr": expr, "eval_time": at,
			"exp_samples": []object{{"labels": "{}", "value": value}}})
	}
	text, err := yaml.Marshal(object{"rule_files": []string{rules}, "evaluation_interval": "5m", "tests": []object{
		{"name": t.Name(), "interval": "1m", "input_series": series, "promql_expr_test": exprs}}})
	agenttest.Do(t, err)
	file := filepath.Join(t.TempDir(), "alerts_test.yaml")
	agenttest.Write(t, file, string(text))
	if out, err := exec.Command(tool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, strings.TrimSpace(string(out)))
	}
}

// podLabels returns the labels of the series of an agent's pod, as the Prometheus operator makes
// them from the PodMonitor, and Prometheus from the relabelings.
func podLabels(t *testing.T, node string) map[string]string {
	t.Helper()
	const overlay, base = "../../../packaging/kubernetes/overlays/metrics/", "../../../packaging/kubernetes/base/"
	var monitor struct {
		Metadata struct{ Name string }
		Spec     struct {
			JobLabel            string `yaml:"jobLabel"`
			PodMetricsEndpoints []struct {
				Port        string
				Relabelings []struct {
					SourceLabels []string `yaml:"sourceLabels"`
					TargetLabel  string   `yaml:"targetLabel"`
				}
			} `yaml:"podMetricsEndpoints"`
		}
	}
	var agents struct {
		Spec struct {
			Template struct {
				Metadata struct{ Labels map[string]string }
			}
		}
	}
	for path, into := range map[string]any{overlay + "podmonitor.yaml": &monitor, base + "daemonset.yaml": &agents} {
		text, err := os.ReadFile(path)
		agenttest.Do(t, err, yaml.Unmarshal(text, into))
	}
	end := monitor.Spec.PodMetricsEndpoints[0]
	out := map[string]string{"namespace": "nearside", "pod": "nearside-x7k2p", "container": "nearside",
		"endpoint": end.Port, "instance": "10.42.0.9:9902", "job": "nearside/" + monitor.Metadata.Name}
	if job := agents.Spec.Template.Metadata.Labels[monitor.Spec.JobLabel]; job != "" {
		out["job"] = job
	}
	for _, r := range end.Relabelings {
		if !slices.Equal(r.SourceLabels, []string{"__meta_kubernetes_pod_node_name"}) {
			t.Fatalf("this test does not know the relabeling %+v", r)
		}
		out[r.TargetLabel] = node
	}
	return out
}

// rules are the alerting rules.
type rules struct {
	Groups []struct {
		Rules []struct{ Alert, Expr string }
	}
}

func readRules(t *testing.T) (out rules) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	agenttest.Do(t, err, yaml.Unmarshal(text, &out))
	return out
}

// alerts returns the names of all alerts.
func alerts(t *testing.T) (out []string) {
	t.Helper()
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			out = append(out, r.Alert)
		}
	}
	return out
}

var metricName = regexp.MustCompile(`\bnearside_[a-z_]+`)

// seriesOf returns the series of an agent for the rules: five minutes with the samples before a
// fault, and then an hour with those after it. A series that did not exist before begins with the
// fault. If the fault repeats, counters grow each minute. now is the time of the agent: the clock
// of promtool begins at 0, and the distance to timestamps remains.
func seriesOf(t *testing.T, before, after map[string]float64, repeats bool, now time.Time) map[string]string {
	t.Helper()
	used := map[string]bool{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			for _, name := range metricName.FindAllString(r.Expr, -1) {
				used[name] = true
			}
		}
	}
	out := map[string]string{}
	for _, series := range slices.Sorted(maps.Keys(after)) {
		name, _, _ := strings.Cut(series, "{")
		if !used[name] || before[series] == 0 && after[series] == 0 { // promtool needs time for each
			continue
		}
		first, last := "_x4", after[series]
		start, existed := before[series]
		counter := strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket")
		switch {
		case strings.HasSuffix(name, "_timestamp_seconds"):
			out[series] = fmt.Sprintf("%g+60x65", last-float64(now.Unix()))
			continue
		case existed:
			first = fmt.Sprintf("%gx4", start)
		}
		growth := 0.0
		if repeats && counter {
			growth = last - start
		}
		out[series] = fmt.Sprintf("%s %g+%gx60", first, last, growth)
	}
	return out
}
