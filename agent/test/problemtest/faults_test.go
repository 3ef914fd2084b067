package problemtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestMain runs the tests, or an agent for one of them.
func TestMain(m *testing.M) {
	if dir, metrics, ok := strings.Cut(os.Getenv(agentEnv), "\n"); ok {
		if err := runAgent(dir, metrics); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The goroutine of lumberjack never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// world is the agent of a fault. It does not run before start.
type world struct {
	*agenttest.Running
	t    *testing.T
	dir  string
	deps agent.Deps
	set  []string
	// started is called when the agent has started, before the first samples of its metrics.
	started func()
	late    func() // set by before or started, for after
}

// file writes a resource file.
func (w *world) file(name, text string) {
	agenttest.WriteSecret(w.t, filepath.Join(w.dir, "resources", name), text)
}

// fault is a fault and the entry of the list of problems that it must cause.
type fault struct {
	name     string
	set      []string       // settings of the agent
	file     string         // a resource file before the start
	before   func(w *world) // before the start
	after    func(w *world) // when the agent runs
	check    string         // the class
	severity string
	cause    string // part of the reason
	names    string // part of the output of the first command; empty: it only has to work
	alone    bool   // no other problem is about a disk
	alerts   string // that fire, besides NearsideProblems for errors and NearsideWarnings for warnings
	repeats  bool   // the fault does not end: its counters grow further
	// metric is the beginning of a series that grows, if no view lists the fault (without check).
	metric string
}

// TestFaults provokes each fault on a new agent, and compares all views of the list of problems. It
// runs the first command of the problem.
func TestFaults(t *testing.T) {
	all := everyFault()
	if len(all) < 60 {
		t.Errorf("%d faults, want at least 60", len(all))
	}
	cases := make([]alertCase, len(all))
	test := func(i int) {
		t.Run(strings.ReplaceAll(all[i].name, " ", "-"), func(t *testing.T) { cases[i] = provoke(t, &all[i]) })
	}
	var waiting sync.WaitGroup // faults of pools, whose agents mostly wait
	defer waiting.Wait()
	pools := len(all) - len(nodeFaults)
	for i := pools; i < len(all); i++ {
		waiting.Go(func() { test(i) })
	}
	for i := range pools {
		test(i)
	}
	waiting.Wait()
	cases = slices.DeleteFunc(cases, func(c alertCase) bool { return c.series == nil }) // skipped or failed
	t.Run("alerts", func(t *testing.T) { testAlerts(t, cases) })
}

// everyFault returns all faults. Those of pools are the last ones.
func everyFault() []fault {
	return slices.Concat(fileFaults, stateFaults, settingFaults, meshFaults, logFaults, dnsFaults, apiFaults, nodeFaults)
}

// provoke runs one fault, and returns its test of the alerts.
func provoke(t *testing.T, f *fault) alertCase {
	w := &world{t: t, dir: agenttest.Home(t)}
	if f.file != "" {
		w.file("a.yaml", f.file)
	}
	if f.before != nil {
		f.before(w)
	}
	if len(w.set) == 0 {
		w.set = f.set
	}
	set := make([]string, len(w.set))
	for i, s := range w.set {
		set[i] = strings.ReplaceAll(s, "DIR", w.dir)
	}
	w.Running = agenttest.Up(t, w.dir, w.deps, set...)
	if w.started != nil {
		w.started()
	}
	before := samples(t, w.Running)
	if f.after != nil {
		f.after(w)
	}
	w.listed(f, sum(before, f.metric))
	var list []api.Problem
	var after map[string]float64
	agenttest.Eventually(t, "the metrics count the same problems as the status", func() bool {
		s, err := w.Api().Status(t.Context())
		agenttest.Do(t, err)
		list, after = s.Problems, samples(t, w.Running)
		return maps.Equal(problemsIn(after), countsOf(list)) && (f.check == "" || slices.ContainsFunc(list, f.is))
	})
	c := alertCase{name: f.name, fires: map[string]bool{}}
	c.series = seriesOf(t, before, after, f.repeats, w.now())
	c.fires["NearsideProblems"], c.fires["NearsideWarnings"] = has(list, api.SeverityError), has(list, api.SeverityWarning)
	for _, alert := range strings.Fields(f.alerts) {
		c.fires[alert] = true
	}
	return c
}

// is reports whether a problem is that of the fault.
func (f *fault) is(p api.Problem) bool {
	return p.Check == f.check && p.Severity == f.severity && strings.Contains(p.Reason, f.cause)
}

// has reports whether a problem of a severity is listed.
func has(list []api.Problem, severity string) bool {
	return slices.ContainsFunc(list, func(p api.Problem) bool { return p.Severity == severity })
}

// now returns the time of the agent.
func (w *world) now() time.Time {
	if w.deps.Now != nil {
		return w.deps.Now()
	}
	return time.Now()
}

// sum returns the sum of the series with a prefix.
func sum(samples map[string]float64, prefix string) (n float64) {
	for name, value := range samples {
		if strings.HasPrefix(name, prefix) {
			n += value
		}
	}
	return n
}

// listed waits until all views list a fault, and runs the first command of its problem. before is
// the sum of the metric of a fault that no view lists.
func (w *world) listed(f *fault, before float64) {
	t := w.t
	if f.check == "" {
		agenttest.Eventually(t, f.metric+" grows", func() bool {
			return f.metric == "" || sum(samples(t, w.Running), f.metric) > before
		})
		return
	}
	var found api.Problem
	var list []api.Problem
	var unlike []string
	for begun := time.Now(); ; <-time.After(20 * time.Millisecond) {
		list, unlike = differences(t, w.Running)
		i := slices.IndexFunc(list, f.is)
		if i >= 0 && len(unlike) == 0 {
			found = list[i]
			break
		}
		if time.Since(begun) > agenttest.Patience {
			for _, p := range list {
				t.Logf("%s %s %s: %s", p.Severity, p.Check, p.Resource, p.Reason)
			}
			t.Fatalf("the views do not agree on a %s %s with %q: %s", f.severity, f.check, f.cause, strings.Join(unlike, "\n"))
		}
	}
	if !strings.Contains(found.Command, " FILE") { // otherwise the user has to fill in a file
		code, out := run(t, w.Running, found.Command)
		if code == command.ExitUsage || code > 100 {
			t.Errorf("%s: exit code %d: %s", found.Command, code, out)
		}
		if !strings.Contains(out, f.names) {
			t.Errorf("%s does not say %q: %s", found.Command, f.names, out)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(list), func(p api.Problem) bool {
		return !slices.Contains([]string{"state", "space", "audit-log", "access-logs"}, p.Check)
	})); f.alone && n != 1 {
		t.Errorf("%d problems are about the disk: %+v", n, list)
	}
}
