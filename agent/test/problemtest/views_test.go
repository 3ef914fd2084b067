package problemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// counts maps the class and the severity of problems to their number.
type counts map[[2]string]int

func countsOf(list []api.Problem) counts {
	out := counts{}
	for _, p := range list {
		out[[2]string{p.Check, p.Severity}]++
	}
	return out
}

// nearside runs a command of the CLI.
func nearside(r *agenttest.Running, args ...string) (code int, out string) {
	var stdout, stderr bytes.Buffer
	p := command.Program{Version: "", CheckConfig: agent.CheckConfig}
	code = cli.Main(p, append(args, "--socket", r.Addrs().API), nil, &stdout, &stderr, nil)
	return code, stdout.String() + stderr.String()
}

// clientChecks are the rows of "nearside check" that are not from the agent.
var clientChecks = []string{"agent", "proxies", "unchecked", "envoy", "problems"}

// differences compares all views of the list of problems. It returns the list of "nearside status"
// and what the other views say otherwise.
func differences(t *testing.T, r *agenttest.Running) (list []api.Problem, unlike []string) {
	t.Helper()
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	want := countsOf(s.Problems)
	failed := slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Severity == api.SeverityError })
	unready := slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Unready })
	report := func(bad bool, format string, args ...any) {
		if bad {
			unlike = append(unlike, fmt.Sprintf(format, args...))
		}
	}
	exit := func(view string, got int, bad bool, code int) {
		if !bad {
			code = command.ExitOK
		}
		report(got != code, "%s: exit code %d, want %d", view, got, code)
	}
	report(s.Ready == unready, "ready is %t, and a problem that makes the node unready is %t", s.Ready, unready)
	for _, p := range s.Problems {
		known := slices.ContainsFunc(api.ProblemClasses, func(c api.ProblemClass) bool { return c.Name == p.Check })
		report(!known || p.Command == "" || p.Reason == "", "no class, command, or reason: %+v", p)
	}
	for _, c := range s.Checks {
		bad := (!c.OK || c.Degraded) && c.Name != "resource-files"
		in := want[[2]string{c.Name, api.SeverityError}]+want[[2]string{c.Name, api.SeverityWarning}] > 0
		report(bad != in && !in, "the check %s is %+v, and no problem", c.Name, c)
	}

	code, text := nearside(r, "status")
	exit("status", code, unready, command.ExitNo)
	got := counts{}
	for _, m := range regexp.MustCompile(`(?m)^  (FAIL|WARN) ([a-z-]+): `).FindAllStringSubmatch(text, -1) {
		got[[2]string{m[2], map[string]string{"FAIL": api.SeverityError, "WARN": api.SeverityWarning}[m[1]]}]++
	}
	report(!maps.Equal(got, want), "status lists %v, want %v", got, want)
	report(!strings.Contains(text, fmt.Sprintf("\nproblems   %d\n", len(s.Problems))), "status counts otherwise: %s", text)
	code, _ = nearside(r, "status", "--exit-code")
	exit("status --exit-code", code, failed, command.ExitNo)
	code, _ = nearside(r, "healthcheck")
	exit("healthcheck", code, unready, command.ExitFailed)

	code, text = nearside(r, "check", "-o", "json")
	exit("check", code, failed, command.ExitNo)
	var c struct {
		Checks []struct{ Name, State, Reason, Command string }
	}
	agenttest.Do(t, json.Unmarshal([]byte(text), &c))
	got = counts{}
	for _, x := range c.Checks {
		if x.State == "ok" || x.Command == "" && slices.Contains(clientChecks, x.Name) {
			continue
		}
		got[[2]string{x.Name, map[string]string{"FAIL": api.SeverityError, "WARN": api.SeverityWarning}[x.State]}]++
		report(!slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
			return p.Check == x.Name && strings.HasSuffix(x.Reason, p.Reason) && p.Command == x.Command
		}), "check has its own problem %+v", x)
	}
	report(!maps.Equal(got, want), "check lists %v, want %v", got, want)

	state, body := r.Request("GET", "http://nearside/readyz?verbose", "")
	report((state == 503) != unready, "readyz: %d", state)
	var h api.Health
	agenttest.Do(t, json.Unmarshal([]byte(body), &h))
	got = counts{}
	for _, x := range h.Problems {
		got[[2]string{x.Check, x.Severity}] += x.Count
	}
	report(!maps.Equal(got, want), "readyz?verbose counts %v, want %v", got, want)
	report(fmt.Sprint(h.Problems) != fmt.Sprint(status.CountProblems(s.Problems)), "readyz?verbose has other commands")

	got = problemsIn(samples(t, r))
	report(!maps.Equal(got, want), "nearside_problems is %v, want %v", got, want)
	return s.Problems, unlike
}

var problemSeries = regexp.MustCompile(`^nearside_problems\{check="([^"]*)",severity="([^"]*)"\}$`)

// problemsIn returns the counts of nearside_problems.
func problemsIn(samples map[string]float64) counts {
	out := counts{}
	for name, value := range samples {
		if m := problemSeries.FindStringSubmatch(name); m != nil && value > 0 {
			out[[2]string{m[1], m[2]}] += int(value)
		}
	}
	return out
}

// samples returns the samples of /metrics by series.
func samples(t *testing.T, r *agenttest.Running) map[string]float64 {
	t.Helper()
	_, text := r.Request("GET", "http://nearside/metrics", "")
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
		if line[0] != '#' && err == nil {
			out[line[:i]] = value
		}
	}
	return out
}

// run runs the first command of a problem, and returns its output.
func run(t *testing.T, r *agenttest.Running, text string) (code int, out string) {
	t.Helper()
	if args, ok := strings.CutPrefix(text, "nearside "); ok {
		return nearside(r, strings.Fields(args)...)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", text)
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s: %v", text, err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}
