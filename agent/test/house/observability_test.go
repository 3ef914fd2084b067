package house

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// metricUse matches a metric of the agent in an expression, with its selector. nearsideJob matches
// the job that selects other metrics.
var (
	metricUse   = regexp.MustCompile(`\b(nearside_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	foreignUse  = regexp.MustCompile(`\b(?:up|process_[a-z_]+|go_[a-z_]+)\b(\{job="nearside"[,}])?`)
	variableUse = regexp.MustCompile(`\$([a-z_]+)`)
	labelOf     = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	metricRow   = regexp.MustCompile("(?m)^\\| `(nearside_[a-z0-9_]+)(?:\\{([a-z,]+)\\})?` \\| " +
		"(counter|gauge|histogram) \\|")
	groupedBy   = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	everyLabel  = []string{"instance", "job", "le"}
	onAlerts    = regexp.MustCompile(`\bALERTS\{[^}]*\}`)
	counterOnly = regexp.MustCompile(`\b(?:rate|increase)\((nearside_[a-z0-9_]+)`)
)

// metric is a row of docs/metrics.md. Another test compares that page with the agent.
type metric struct {
	kind   string
	labels []string
}

// wrongMetrics returns the metrics and labels in an expression that no agent has.
func wrongMetrics(expr string, known map[string]metric) (out []string) {
	find := func(name string) (metric, bool) {
		if m, ok := known[name]; ok {
			return m, m.kind != "histogram"
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if m, ok := known[strings.TrimSuffix(name, suffix)]; ok && strings.HasSuffix(name, suffix) && m.kind == "histogram" {
				return m, true
			}
		}
		return metric{}, false
	}
	labels := slices.Clone(everyLabel)
	if onAlerts.MatchString(expr) {
		labels = append(labels, "alertname")
	}
	for _, m := range metricUse.FindAllStringSubmatch(expr, -1) {
		is, ok := find(m[1])
		if !ok {
			out = append(out, m[1]+" is no metric")
		}
		labels = append(labels, is.labels...)
		for _, l := range labelOf.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(is.labels, l[1]) && l[1] != "instance" {
				out = append(out, m[1]+" has no label "+l[1])
			}
		}
	}
	for _, m := range groupedBy.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(l)) {
				out = append(out, "nothing has the label "+l)
			}
		}
	}
	for _, m := range counterOnly.FindAllStringSubmatch(expr, -1) {
		if is, ok := find(m[1]); ok && is.kind == "gauge" {
			out = append(out, m[1]+" is a gauge, which has no rate")
		}
	}
	for _, m := range foreignUse.FindAllStringSubmatch(expr, -1) {
		if m[1] == "" {
			out = append(out, m[0]+" is of every job; select job=\"nearside\"")
		}
	}
	return out
}

func documentedMetrics(t *testing.T) map[string]metric {
	text, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = metric{m[3], strings.Split(m[2], ",")}
	}
	if len(out) < 20 {
		t.Fatalf("docs/metrics.md has %d metrics; this test does not find them", len(out))
	}
	return out
}

// TestAlertsAndDashboard checks that the metrics and labels in alerting rules and the dashboard
// exist, and that docs/alerts.md explains the response to each alert.
func TestAlertsAndDashboard(t *testing.T) {
	known := documentedMetrics(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	text, err := os.ReadFile(root + "/packaging/observability/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(root + "/docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Nearside[A-Za-z]+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		reported[m[1]] = true
	}
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			for _, why := range wrongMetrics(r.Expr, known) {
				t.Errorf("alerts.yaml: %s: %s", r.Alert, why)
			}
			if !reported[r.Alert] {
				t.Errorf("docs/alerts.md does not say what to do for %s", r.Alert)
			}
			delete(reported, r.Alert)
			if s := r.Labels["severity"]; s != "critical" && s != "warning" || r.Annotations["summary"] == "" {
				t.Errorf("alerts.yaml: %s has the severity %q and the summary %q", r.Alert, s, r.Annotations["summary"])
			}
		}
	}
	for name := range reported {
		t.Errorf("docs/alerts.md: %s is no alert", name)
	}
	var board struct {
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	text, err = os.ReadFile(root + "/packaging/observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
		for _, why := range wrongMetrics(v.Definition, known) {
			t.Errorf("dashboard.json: variable %s: %s", v.Name, why)
		}
	}
	if !variables["instance"] || !variables["mesh"] {
		t.Errorf("dashboard.json: the variables are %v, want instance and mesh among them", variables)
	}
	ids, shown := map[int]bool{}, ""
	for _, p := range board.Panels {
		if ids[p.ID] || (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("dashboard.json: %s has an id that another panel has, or shows nothing", p.Title)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			shown += x.Expr + "\n"
			for _, m := range variableUse.FindAllStringSubmatch(x.Expr, -1) {
				if !variables[m[1]] {
					t.Errorf("dashboard.json: %s: there is no variable %s", p.Title, m[1])
				}
			}
			if !onAlerts.MatchString(x.Expr) && strings.Count(x.Expr, "{") != strings.Count(x.Expr, `instance=~"$instance"`) {
				t.Errorf("dashboard.json: %s: a metric of %s is not limited to the selected instances", p.Title, x.Expr)
			}
			for _, why := range wrongMetrics(x.Expr, known) {
				t.Errorf("dashboard.json: %s: %s", p.Title, why)
			}
		}
	}
	for _, area := range []string{"nearside_gossip_", "nearside_dns_", "nearside_log_", "nearside_problems{", `mesh=~"$mesh"`} {
		if !strings.Contains(shown, area) {
			t.Errorf("dashboard.json shows nothing of %s", area)
		}
	}
	if n < 10 || len(board.Panels) < 10 {
		t.Errorf("%d alerts and %d panels: this test does not find them", n, len(board.Panels))
	}
}

// TestWrongMetricsAreFound checks that the test of the alerts finds errors.
func TestWrongMetricsAreFound(t *testing.T) {
	known := map[string]metric{"nearside_a_total": {"counter", []string{"reason"}}, "nearside_b": {"gauge", []string{""}},
		"nearside_c_seconds": {"histogram", []string{""}}}
	for expr, want := range map[string]int{
		`sum by (instance, reason) (rate(nearside_a_total{reason="x"}[5m])) > 0`: 0,
		`rate(nearside_c_seconds_bucket[5m]) + nearside_b`:                       0,
		`nearside_gone > 0`: 1, `nearside_c_seconds > 0`: 1, `nearside_b_bucket`: 1, `nearside_a_total{type="x"}`: 1,
		`sum by (type) (nearside_a_total)`: 1, `rate(nearside_b[5m])`: 1, `up == 0`: 1, `up{job="nearside"} == 0`: 0,
		`sum(up{job="nearside",instance=~"$instance"})`: 0, `nearside_b{instance=~"$instance",x="y"}`: 1,
	} {
		if got := wrongMetrics(expr, known); len(got) != want {
			t.Errorf("%s: %q", expr, got)
		}
	}
}
