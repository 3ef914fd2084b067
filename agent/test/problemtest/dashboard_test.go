package problemtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// check runs a check of promtool on a file with a text.
func check(t *testing.T, what, text string) {
	t.Helper()
	tool := promtool()
	if tool == "" {
		t.Skip("there is no promtool; .ci/install-promtool installs it")
	}
	file := filepath.Join(t.TempDir(), "file.yaml")
	agenttest.Write(t, file, text)
	if out, err := exec.CommandContext(t.Context(), tool, "check", what, file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestDashboardQueries checks that Prometheus accepts each query of the dashboard.
func TestDashboardQueries(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/observability/dashboard.json")
	agenttest.Do(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	agenttest.Do(t, json.Unmarshal(text, &board))
	var rules []map[string]string
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$mesh", ".*").Replace(x.Expr)
			rules = append(rules, map[string]string{"record": fmt.Sprintf("query:%d", len(rules)), "expr": expr})
		}
	}
	if len(rules) < 30 {
		t.Errorf("the dashboard has %d queries", len(rules))
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	agenttest.Do(t, err)
	check(t, "rules", string(file))
}

// TestScrapeConfig checks that Prometheus accepts the config in docs/alerts.md, and that it scrapes
// the job that the rules select, at least once a minute.
func TestScrapeConfig(t *testing.T) {
	text, err := os.ReadFile("../../../docs/alerts.md")
	agenttest.Do(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(rule_files:.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/alerts.md has no scrape config")
	}
	var config struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrape    []struct {
			Job      string `yaml:"job_name"`
			Interval string `yaml:"scrape_interval"`
			Auth     struct {
				File string `yaml:"credentials_file"`
			} `yaml:"authorization"`
		} `yaml:"scrape_configs"`
	}
	agenttest.Do(t, yaml.Unmarshal(block[1], &config))
	if len(config.Scrape) != 1 || config.Scrape[0].Job != "nearside" || config.Scrape[0].Interval != "15s" {
		t.Fatalf("docs/alerts.md scrapes %+v", config.Scrape)
	}
	rules, err := filepath.Abs(rulesFile)
	agenttest.Do(t, err)
	token := filepath.Join(t.TempDir(), "token")
	agenttest.WriteSecret(t, token, scrapeToken)
	check(t, "config", strings.NewReplacer(config.RuleFiles[0], rules, config.Scrape[0].Auth.File, token).
		Replace(string(block[1])))
}
