package faulttest_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// row is a fault, and what a user sees of it.
type row struct {
	fault string
	// apply are resources that cause the fault, applied with "nearside apply". The command must print
	// warning, which all views of the problems show too.
	apply, warning string
	// provoke causes the fault in another way. remove ends it.
	provoke func(t *testing.T, n *node) (remove func())
	// commands are the first, or the first and the second command that a user runs.
	commands []string
	says     []string // what the commands print about the cause
	code     int      // exit code of the last command
	// problem is the check of the entry that the fault adds to the list of problems, and severity its
	// severity. Empty: none.
	problem, severity string
	// down is set if no agent runs, which could list problems.
	down bool
	// stays is set if the entry stays for some time when the fault is removed.
	stays bool
}

// test provokes the fault, and checks that the commands name the cause, that all views of the
// problems have the entry and agree, and that the entry disappears with the fault.
func (r row) test(t *testing.T, n *node) {
	n.t = t
	if len(r.commands) == 0 || len(r.commands) > 2 {
		t.Fatalf("%d commands name the cause", len(r.commands))
	}
	var before []problem
	if !r.down {
		before = n.views(t).problems
	}
	remove := r.cause(t, n)
	defer func() { remove() }()
	screens := r.screens(t, n)
	if !r.down {
		r.listed(t, n, before)
	}
	if os.Getenv(recordEnv) != "" {
		fmt.Printf("\n######## %s\n%s%s", r.fault, screens, n.command("nearside status"))
	}
	if r.down {
		return
	}
	remove()
	remove = func() {}
	if r.stays {
		return
	}
	var now views
	if !poll(func() bool { now = n.views(t); return len(remaining(before, now.problems)) == 0 }) {
		t.Errorf("the problem stays when the fault is removed: %v", remaining(before, now.problems))
	}
}

// remaining returns the problems that are not in before, except those about Envoys that have ended:
// rows end theirs.
func remaining(before, now []problem) []problem {
	return slices.DeleteFunc(added(before, now), func(p problem) bool {
		return strings.Contains(p.Reason, "its Envoy has ended")
	})
}

// cause causes the fault and returns a function that removes it.
func (r row) cause(t *testing.T, n *node) (remove func()) {
	t.Helper()
	if r.provoke != nil {
		if remove = r.provoke(t, n); remove == nil {
			remove = func() {}
		}
		return remove
	}
	name := n.path("fault.yaml")
	n.write(name, r.apply)
	for _, s := range []screen{
		n.run("", "validate", "-f", n.path("resources"), "-f", name), n.run("", "apply", "-f", name),
	} {
		if s.code != 0 || !strings.Contains(s.text, n.local(r.warning)) {
			t.Errorf("%s: missing %q in\n%s", r.fault, r.warning, s)
		}
		if os.Getenv(recordEnv) != "" {
			fmt.Print(s)
		}
	}
	return func() { n.run("", "delete", "-f", name) }
}

// screens checks what the commands print, and returns it.
func (r row) screens(t *testing.T, n *node) (all string) {
	t.Helper()
	var missing []string
	poll(func() bool {
		all, missing = "", nil
		var last screen
		for _, c := range r.commands {
			last = n.command(c)
			all += last.String()
		}
		for _, s := range r.says {
			if !strings.Contains(all, n.local(s)) {
				missing = append(missing, n.local(s))
			}
		}
		if last.code != r.code {
			missing = append(missing, fmt.Sprintf("[exit code %d]", r.code))
		}
		return len(missing) == 0
	})
	if len(missing) > 0 {
		t.Errorf("%s: missing %q in\n%s", r.fault, missing, all)
	}
	return all
}

// listed checks the entries that the fault has added to the list of problems.
func (r row) listed(t *testing.T, n *node, before []problem) {
	t.Helper()
	var faults []string
	poll(func() bool {
		v := n.views(t)
		faults = v.disagreements()
		more := added(before, v.problems)
		switch {
		case r.problem == "" && len(more) > 0:
			faults = append(faults, fmt.Sprintf("there is a problem: %v", more))
		case r.problem != "" && !slices.ContainsFunc(more, func(p problem) bool {
			is := p.Check == r.problem || p.Check == ofOne && r.problem == noEffect
			return is && p.Severity == r.severity && strings.Contains(p.Reason, n.local(r.warning))
		}):
			faults = append(faults, fmt.Sprintf("no problem is %s %s %q: %v", r.severity, r.problem, r.warning, more))
		}
		return len(faults) == 0
	})
	for _, f := range faults {
		t.Errorf("%s: %s", r.fault, f)
	}
}

// listTimeout is how long a fault may take to appear in a list, or to disappear from it. It appears
// within a second, but the machine may be busy or stand still for some seconds.
const listTimeout = time.Minute

// poll repeats a condition until it is true, for at most listTimeout.
func poll(holds func() bool) bool {
	tick, late := time.NewTicker(50*time.Millisecond), time.After(listTimeout)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}
