package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// selected is a network namespace that a rule selects.
type selected struct {
	inode uint64
	path  string
	pid   int // 0 without a process
}

// scan is one pass over the rules of a watcher.
type scan struct {
	w         *Watcher
	own, host uint64
	records   map[uint64]*Record
	by        map[uint64]int // rule by namespace
	installed int            // namespaces of all rules
	visited   int
	dirs      map[string]bool // directories and files whose events announce new namespaces
	unusable  error           // of the directory of records
	err       error           // of the current rule: its selection may be incomplete
	changing  time.Duration   // time of installations
	news      [][]any         // attributes of the log line of each installation
	ready     []string        // rules whose complete selection is applied for the first time
}

// readNamespaces determines the namespaces that are never changed.
func (s *scan) readNamespaces() {
	s.dirs = map[string]bool{}
	s.own, _ = namespaceInode(ownPath)
	s.host, _ = namespaceInode(hostNetns()) // 0 if it cannot be read
}

// find returns the namespaces that a rule selects, sorted by path.
func (s *scan) find(r *Rule) []selected {
	found := map[uint64]selected{}
	if r.Netns != "" {
		s.findFiles(r.Netns, found)
	} else {
		s.findProcesses(r.Cgroup, found)
	}
	out := make([]selected, 0, len(found))
	for _, f := range found {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b selected) int { return strings.Compare(a.path, b.path) })
	return out
}

// findFiles finds the files of namespaces. A file that is not yet mounted is found later.
func (s *scan) findFiles(pattern string, found map[uint64]selected) {
	for _, path := range s.glob("/", pattern[1:], false) {
		inode, err := namespaceInode(path)
		if old, known := found[inode]; err == nil && (!known || path < old.path) {
			found[inode] = selected{inode: inode, path: path}
		}
	}
}

// glob returns the paths below root that match a pattern, or only directories. It remembers the
// directories in which others can appear.
func (s *scan) glob(root, pattern string, dirs bool) []string {
	level, rest, more := strings.Cut(pattern, "/")
	if !strings.ContainsAny(level, `*?[\`) {
		path := filepath.Join(root, level)
		if _, err := os.Lstat(path); err != nil {
			s.dirs[root] = true
			return nil
		}
		if !more {
			return []string{path}
		}
		return s.glob(path, rest, dirs)
	}
	s.dirs[root] = true
	list, err := os.ReadDir(root)
	s.fail(err)
	var out []string
	for _, e := range list {
		if !s.visit() {
			return out
		}
		if ok, _ := filepath.Match(level, e.Name()); !ok || (more || dirs) && !e.IsDir() {
			continue
		}
		if path := filepath.Join(root, e.Name()); !more {
			out = append(out, path)
		} else {
			out = append(out, s.glob(path, rest, dirs)...)
		}
	}
	return out
}

// visit counts a file or cgroup, and reports whether the limit of a scan allows it.
func (s *scan) visit() bool {
	if s.visited++; s.visited > maxVisited {
		s.fail(fmt.Errorf("more than %d files and cgroups are below the patterns; use narrower patterns", maxVisited))
		return false
	}
	return true
}

// fail records an error that makes the selection incomplete. Files that no longer exist are none.
func (s *scan) fail(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && s.err == nil {
		s.err = err
	}
}

// findProcesses finds the namespaces of processes in cgroups that match, and below.
func (s *scan) findProcesses(pattern string, found map[uint64]selected) {
	root, err := cgroupRoot()
	if err != nil {
		s.fail(err)
		return
	}
	for _, path := range s.glob(root, pattern, true) {
		s.walk(path, found)
	}
}

// cgroupEvents is the file of a cgroup that changes with its first and after its last process. Only
// a watch on the file itself reports it.
const cgroupEvents = "cgroup.events"

// walk finds the namespace of each cgroup at a path and below. A namespace has the path of its
// process with the lowest ID.
func (s *scan) walk(path string, found map[uint64]selected) {
	if !s.visit() {
		return
	}
	st, err := os.Stat(path)
	if err != nil {
		s.fail(err)
		return
	}
	s.dirs[path], s.dirs[filepath.Join(path, cgroupEvents)] = true, true
	if pid := s.firstProcess(path); pid != 0 {
		f := selected{path: fmt.Sprintf("/proc/%d/ns/net", pid), pid: pid}
		if f.inode, err = namespaceInode(f.path); err != nil {
			s.fail(err)
		} else if old, known := found[f.inode]; !known || pid < old.pid {
			found[f.inode] = f
		}
	}
	if st.Sys().(*syscall.Stat_t).Nlink == 2 {
		return // no cgroup is below; reading the directory is half of the work
	}
	list, err := os.ReadDir(path)
	s.fail(err)
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		s.walk(filepath.Join(path, e.Name()), found)
	}
}

// firstProcess returns the lowest ID of the processes in a cgroup, or 0. Further namespaces that a
// container creates itself are not selected, so that it cannot use up the limit of all.
func (s *scan) firstProcess(cgroup string) (first int) {
	f, err := os.Open(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		s.fail(err)
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return 0 // a threaded cgroup has no processes
	}
	for line := range bytes.Lines(b) {
		pid, err := strconv.Atoi(strings.TrimSpace(string(line)))
		if err == nil && pid == 0 {
			s.fail(fmt.Errorf("the processes of the cgroup %s are in another PID namespace than the agent; run the agent in "+
				"that of the host (in a pod: hostPID)", cgroup))
		} else if err == nil && (first == 0 || pid < first) {
			first = pid
		}
	}
	return first
}

// apply installs the redirection of a rule in a namespace, unless it is there.
func (s *scan) apply(i int, r *Rule, f selected, status *RuleStatus) {
	if f.inode == s.own || f.inode == s.host {
		status.Refused++ // processes in cgroups commonly share the host's namespace
		return
	}
	if _, taken := s.by[f.inode]; taken {
		status.Others++
		return
	}
	s.by[f.inode] = i
	old := s.records[f.inode]
	switch {
	case old != nil && (old.Rule == "" || old.Dataplane != ""):
		status.Others++
		return
	case old != nil && old.Rule == r.Name && old.Spec.equal(&r.Spec):
		status.Installed++
		return
	case old == nil && s.installed >= s.w.max:
		status.Refused++
		status.refusal("%d namespaces are installed by rules, which is the maximum; use narrower patterns", s.w.max)
		return
	}
	failed, before := s.w.failures[f.inode]
	if before && time.Now().Before(failed.next) {
		status.Failed++
		status.refusal("%s: %v", f.path, failed.err)
		return
	}
	began := time.Now()
	err := s.install(r, f)
	s.changing += time.Since(began)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errOtherNamespace):
		return // it vanished
	case errors.Is(err, errInstalledByCommand) || errors.Is(err, errInstalledForPod):
		status.Others++
	case err != nil:
		failed.err, failed.delay = err, min(max(2*failed.delay, time.Second), maxRetry)
		failed.next = time.Now().Add(failed.delay)
		s.w.failures[f.inode] = failed
		status.Failed++
		status.refusal("%s: %v", f.path, err)
	default:
		delete(s.w.failures, f.inode)
		status.Installed++
		if old == nil {
			s.installed++
		}
		s.news = append(s.news, []any{"rule", r.Name, "netns", f.path, "redirected", r.Spec.String()})
	}
}

var errOtherNamespace = errors.New("the path now leads to another network namespace")

func (s *scan) install(r *Rule, f selected) error {
	n, err := OpenNamespace(f.path)
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Inode != f.inode {
		return errOtherNamespace
	}
	spec := r.Spec
	_, err = install(n, &spec, s.w.dir, Record{Rule: r.Name})
	return err
}

// removeUnselected removes the redirections of rules that no longer exist, and those that their
// rule has not selected since it was set. A namespace whose last process ended remains unchanged.
// It reports whether it succeeded.
func (s *scan) removeUnselected(rules []Rule, seen map[uint64]bool) bool {
	all := true
	for _, old := range s.records {
		known := slices.ContainsFunc(rules, func(r Rule) bool { return r.Name == old.Rule })
		if old.Rule == "" || seen[old.Inode] || known && !slices.Contains(s.ready, old.Rule) {
			continue
		}
		began := time.Now()
		err := uninstallRecord(old, s.w.dir)
		s.changing += time.Since(began)
		if err != nil {
			s.w.log.Warn("cannot remove the interception of a rule", "rule", old.Rule, "netns", old.Netns, "error", err)
			all = false
			continue
		}
		s.w.log.Info("removed interception that no rule selects", "rule", old.Rule, "netns", old.Netns)
	}
	return all
}

// uninstallRecord removes an installation, if its namespace still exists.
func uninstallRecord(old *Record, dir string) error {
	n, err := old.open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGone) {
		return nil // the renewer removes the record
	}
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Inode != old.Inode {
		return nil
	}
	_, err = Uninstall(n, dir)
	return err
}
