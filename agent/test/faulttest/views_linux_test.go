package faulttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// problem is an entry of the list of problems.
type problem struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	Command  string `json:"command"`
}

func (p problem) String() string {
	return fmt.Sprintf("%s %s %s: %s (%s)", p.Severity, p.Check, p.Resource, p.Reason, p.Command)
}

// added returns the problems that are not in before. Their reasons may contain times.
func added(before, now []problem) []problem {
	return slices.DeleteFunc(slices.Clone(now), func(p problem) bool {
		return slices.ContainsFunc(before, func(q problem) bool {
			return p.Check == q.Check && p.Severity == q.Severity && p.Resource == q.Resource &&
				steady(p.Reason) == steady(q.Reason)
		})
	})
}

// result is a line of "nearside check".
type result struct{ Name, State, Reason, Command string }

// views are the list of problems as the commands and the API show it.
type views struct {
	problems []problem // of status -o json
	status   screen    // of status --exit-code
	check    screen    // of check -o json
	results  []result
	metrics  map[string]int // nearside_problems, by "SEVERITY CHECK"
}

// views asks for all views of the problems.
func (n *node) views(t testing.TB) views {
	t.Helper()
	var doc struct{ Problems []problem }
	var checks struct{ Checks []result }
	s := n.run("", "status", "-o", "json")
	v := views{status: n.run("", "status", "--exit-code"), check: n.run("", "check", "-o", "json"),
		metrics: map[string]int{}}
	agenttest.Do(t, json.Unmarshal([]byte(s.out), &doc), json.Unmarshal([]byte(v.check.out), &checks))
	v.problems, v.results = doc.Problems, checks.Checks
	for _, m := range problemMetric.FindAllStringSubmatch(n.get(t, "/metrics"), -1) {
		number, err := strconv.Atoi(m[3])
		agenttest.Do(t, err)
		if number > 0 {
			v.metrics[m[2]+" "+m[1]] += number
		}
	}
	return v
}

var problemMetric = regexp.MustCompile(`(?m)^nearside_problems\{check="([^"]*)",severity="([^"]*)"\} (\d+)$`)

// get returns a document of the API.
func (n *node) get(t testing.TB, path string) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.path("run", "nearside.sock"))
		}}}
	resp, err := c.Get("http://nearside" + path)
	agenttest.Do(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	agenttest.Do(t, err)
	return string(text)
}

// disagreements lists the differences between the views.
func (v views) disagreements() (out []string) {
	failed, counted := false, map[string]int{}
	for _, p := range v.problems {
		counted[p.Severity+" "+p.Check]++
		state := "WARN"
		if p.Severity == "error" {
			failed, state = true, "FAIL"
		}
		if p.Check == "" || p.Command == "" || p.Reason == "" {
			out = append(out, fmt.Sprintf("a problem has no check, reason, or command: %s", p))
		}
		if !strings.Contains(steady(v.status.text), steady(p.Reason)) {
			out = append(out, fmt.Sprintf("%q is not in\n%s", p.Reason, v.status))
		}
		if !slices.ContainsFunc(v.results, func(r result) bool {
			return r.Name == p.Check && r.State == state && r.Command == p.Command &&
				strings.HasSuffix(steady(r.Reason), steady(p.Reason))
		}) {
			out = append(out, fmt.Sprintf("check has no line %s for %s:\n%s", state, p, v.check))
		}
	}
	if !maps.Equal(counted, v.metrics) {
		out = append(out, fmt.Sprintf("the list has %v, and nearside_problems %v", counted, v.metrics))
	}
	if want := map[bool]int{true: 2}[failed]; v.status.code != want || v.check.code != want {
		out = append(out, fmt.Sprintf("errors: %t, exit code of status: %d, of check: %d", failed, v.status.code,
			v.check.code))
	}
	return out
}

var varying = regexp.MustCompile(`\d+|\s+`)

// steady returns a text without what changes with time, and without line breaks.
func steady(text string) string {
	return varying.ReplaceAllStringFunc(text, func(s string) string {
		if strings.TrimSpace(s) == "" {
			return " "
		}
		return "0"
	})
}
