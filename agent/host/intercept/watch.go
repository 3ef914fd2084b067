package intercept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// Rule selects network namespaces in which a [Watcher] installs a redirection. It has one pattern.
type Rule struct {
	Name string
	// Cgroup is a pattern of paths below the root of the cgroup2 file system. It selects the
	// namespaces of processes in matching cgroups and below.
	Cgroup string
	// Netns is a pattern of absolute paths of network namespaces.
	Netns string
	Spec  Spec
}

// pattern describes the pattern for people.
func (r *Rule) pattern() string {
	if r.Cgroup != "" {
		return "cgroup " + r.Cgroup
	}
	return "netns " + r.Netns
}

// Validate returns all errors of the patterns, each with the name of its key.
func (r *Rule) Validate() error {
	var errs []error
	check := func(key, pattern string) {
		if _, err := filepath.Match(pattern, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not a pattern: a [ has no ]; use * for any characters of one level",
				key, pattern))
		}
	}
	check("cgroup", r.Cgroup)
	check("netns", r.Netns)
	switch first, _, _ := strings.Cut(r.Cgroup, "/"); {
	case r.Cgroup == "" && r.Netns == "" || r.Cgroup != "" && r.Netns != "":
		errs = append(errs, errors.New("cgroup: set either cgroup or netns, and not both"))
	case r.Netns != "" && (!filepath.IsAbs(r.Netns) || filepath.Clean(r.Netns) != r.Netns):
		errs = append(errs, fmt.Errorf("netns: %q is not a clean absolute path; use one such as /run/netns/cni-*", r.Netns))
	case r.Netns != "" && strings.HasPrefix(r.Netns, "/proc/"):
		errs = append(errs, fmt.Errorf("netns: %q is below /proc; use cgroup to select processes", r.Netns))
	case r.Cgroup != "" && (filepath.IsAbs(r.Cgroup) || filepath.Clean(r.Cgroup) != r.Cgroup || first == ".."):
		errs = append(errs, fmt.Errorf("cgroup: %q is not a clean path below the root of cgroups; use one such as "+
			"kubepods.slice/*", r.Cgroup))
	case r.Cgroup != "" && (first == "." || strings.Trim(first, "*?") == ""):
		errs = append(errs, fmt.Errorf("cgroup: %q selects all processes of the host; name the first level, such as "+
			"kubepods.slice/*", r.Cgroup))
	}
	return errors.Join(errs...)
}

// Limits and times of a [Watcher].
const (
	maxWatched  = 1024             // default limit of installed namespaces
	maxVisited  = 8192             // cgroups or files of one scan
	maxWatches  = 4096             // watched directories and files
	pollTime    = 10 * time.Second // between scans without events
	pollBlind   = time.Second      // the same, if something cannot be watched
	maxRetry    = time.Minute      // between attempts to install in one namespace
	settleFirst = 20 * time.Millisecond
	settleLast  = 3 * time.Second
	maxShare    = 20 // the pause after a scan takes at least this many times as long as the scan
)

// RuleStatus is the state of a rule.
type RuleStatus struct {
	Name      string `json:"name"`
	Pattern   string `json:"pattern"`
	Installed int    `json:"installed"` // namespaces with a redirection by this rule
	Others    int    `json:"others"`    // namespaces that are already installed by the command or by an earlier rule
	Failed    int    `json:"failed"`    // namespaces in which the installation failed
	Refused   int    `json:"refused"`   // namespaces of the host or the agent, or beyond the limit
	Reason    string `json:"reason,omitempty"`
}

// WatcherOptions configures a Watcher.
type WatcherOptions struct {
	Dir   string // the directory of records, as in [RenewerOptions]
	Rules []Rule // valid
	Limit int    // of installed namespaces; 0: 1024
	Log   *slog.Logger
}

// Watcher installs redirections in the network namespaces that rules select, soon after the
// namespaces exist. It removes its redirections from namespaces that no rule selects any more. It
// is safe for concurrent use.
type Watcher struct {
	dir string
	log *slog.Logger
	max int
	set chan struct{} // the rules have changed

	mu     sync.Mutex
	rules  []Rule
	status []RuleStatus

	// The goroutine of Run uses these fields.
	failures map[uint64]failure // by inode of the namespace
	dirs     map[string]bool    // watched directories and files
	settled  []string           // names of rules whose complete selection has been applied
}

// failure is a failed installation.
type failure struct {
	err   error
	next  time.Time
	delay time.Duration
}

// NewWatcher returns a watcher. It does nothing before Run.
func NewWatcher(o WatcherOptions) *Watcher {
	w := &Watcher{dir: o.Dir, max: cmp.Or(o.Limit, maxWatched), rules: o.Rules, log: o.Log, set: make(chan struct{}, 1),
		failures: map[uint64]failure{},
		dirs:     map[string]bool{}}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.status = statusOf(o.Rules)
	return w
}

// SetRules replaces the rules.
func (w *Watcher) SetRules(rules []Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.EqualFunc(w.rules, rules, func(a, b Rule) bool {
		return a.Name == b.Name && a.Cgroup == b.Cgroup && a.Netns == b.Netns && a.Spec.equal(&b.Spec)
	}) {
		return
	}
	w.rules, w.status = rules, statusOf(rules)
	select {
	case w.set <- struct{}{}:
	default:
	}
}

// statusOf returns the states of rules before the first scan.
func statusOf(rules []Rule) []RuleStatus {
	out := make([]RuleStatus, len(rules))
	for i := range rules {
		out[i] = RuleStatus{Name: rules[i].Name, Pattern: rules[i].pattern()}
	}
	return out
}

func (w *Watcher) current() []Rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rules
}

// Status returns the states of the rules in their order.
func (w *Watcher) Status() []RuleStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.status)
}

// Run watches until ctx ends. The redirections stay.
func (w *Watcher) Run(ctx context.Context) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch network namespaces: %w", err)
	}
	defer events.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	// A container enters its namespace some time after the event of its cgroup, so scans are repeated
	// with growing delays.
	delay, due := settleFirst, time.Now()
	schedule := func(after time.Duration) {
		due = time.Now().Add(after)
		timer.Reset(after)
	}
	var pause time.Duration // after the last scan, at least
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.set:
			w.settled = nil
			schedule(0)
		case e := <-events.Events:
			if !e.Has(fsnotify.Create) && filepath.Base(e.Name) != cgroupEvents {
				continue
			}
			if delay = settleFirst; time.Until(due) > max(delay, pause) {
				schedule(max(delay, pause))
			}
		case err := <-events.Errors:
			w.log.Warn("watching for network namespaces failed; they are scanned again", "error", err)
			schedule(settleFirst)
		case <-timer.C:
			rules := w.current()
			announced, cost := w.scan(rules, events)
			if len(rules) == 0 && announced {
				continue // until there are rules
			}
			pause = min(maxShare*cost, pollBlind)
			switch delay *= 3; {
			case delay <= settleLast:
				schedule(max(delay, pause))
			case announced:
				schedule(pollTime)
			default:
				schedule(pollBlind)
			}
		}
	}
}

// scan applies the rules once. It reports whether events announce all changes, and the time
// without that of installations.
func (w *Watcher) scan(rules []Rule, events *fsnotify.Watcher) (announced bool, cost time.Duration) {
	began := time.Now()
	s := &scan{w: w, records: map[uint64]*Record{}, by: map[uint64]int{}}
	s.readNamespaces()
	if len(rules) > 0 {
		s.unusable = makeRecordDir(w.dir)
	}
	records, faults := readRecords(w.dir)
	for i := range records {
		s.records[records[i].Inode] = &records[i]
		if records[i].Rule != "" {
			s.installed++
		}
	}
	status := statusOf(rules)
	seen := map[uint64]bool{}
	for i := range rules {
		found := s.find(&rules[i])
		for _, f := range found {
			seen[f.inode] = true
			s.apply(i, &rules[i], f, &status[i])
		}
		if err := cmp.Or(s.unusable, s.err); err != nil {
			status[i].Reason = err.Error()
		}
		if s.err == nil && !slices.Contains(w.settled, rules[i].Name) {
			w.settled = append(w.settled, rules[i].Name)
			s.ready = append(s.ready, rules[i].Name)
		}
		s.err = nil
	}
	removed := len(faults) == 0 && s.removeUnselected(rules, seen)
	if !removed { // try again
		w.settled = slices.DeleteFunc(w.settled, func(name string) bool { return slices.Contains(s.ready, name) })
	}
	for inode := range w.failures {
		if !seen[inode] {
			delete(w.failures, inode)
		}
	}
	w.mu.Lock()
	before := w.status
	w.status = status
	w.mu.Unlock()
	for _, attrs := range s.news { // after the status that counts them
		w.log.Info("installed interception by a rule", attrs...)
	}
	for i, r := range status {
		if r.Reason != "" && (i >= len(before) || before[i].Reason != r.Reason) {
			w.log.Warn("a rule for network namespaces is not applied completely", "rule", r.Name, "reason", r.Reason)
		}
	}
	announced = w.watch(events, s.dirs) && removed
	return announced, time.Since(began) - s.changing
}

// watch watches exactly some directories and files, and reports whether this succeeded.
func (w *Watcher) watch(events *fsnotify.Watcher, dirs map[string]bool) bool {
	for d := range w.dirs {
		if !dirs[d] {
			_ = events.Remove(d) // it may no longer exist
			delete(w.dirs, d)
		}
	}
	all := true
	for d := range dirs {
		if w.dirs[d] {
			continue
		}
		if len(w.dirs) >= maxWatches {
			return false
		}
		if err := events.Add(d); err != nil {
			all = all && errors.Is(err, fs.ErrNotExist)
			continue
		}
		w.dirs[d] = true
	}
	return all
}

// refusal adds a reason to a status, once for each kind.
func (s *RuleStatus) refusal(format string, args ...any) {
	if s.Reason == "" {
		s.Reason = fmt.Sprintf(format, args...)
	}
}

// String describes the state of a rule for people.
func (s *RuleStatus) String() string {
	out := fmt.Sprintf("rule %s (%s): %s", s.Name, s.Pattern, plural.Count(s.Installed, "namespace"))
	for _, x := range []struct {
		n    int
		what string
	}{{s.Others, "installed otherwise"}, {s.Failed, "failed"}, {s.Refused, "refused"}} {
		if x.n > 0 {
			out += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}
	if s.Reason != "" {
		out += ": " + s.Reason
	}
	return out
}
