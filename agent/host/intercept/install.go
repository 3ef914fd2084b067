package intercept

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Installed is the result of [Install].
type Installed struct {
	Ruleset *Ruleset `json:"-"`
	// Notes are for the user: optional kernel features that are missing, and cgroups that do not
	// exist.
	Notes []string `json:"notes,omitempty"`
	// Ended is the number of connections that were reset so that clients reconnect.
	Ended uint `json:"ended"`
}

// Plan returns the ruleset for a namespace without loading it.
func Plan(s *Spec) (*Installed, error) {
	s.Normalize()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	cgroups, err := findCgroups(s.Cgroups)
	if err != nil {
		return nil, err
	}
	out := &Installed{Ruleset: NewRuleset(s, cgroups, true)}
	for _, c := range cgroups {
		if c.ID == 0 {
			out.Notes = append(out.Notes,
				fmt.Sprintf("the cgroup %s does not exist; the agent adds it when it is created", c.Path))
		}
	}
	return out, nil
}

// Install loads the ruleset of a spec in a namespace, replacing an earlier one, and writes the
// record for the agent to dir, which is [DirName] below the agent's run directory. The
// redirection of DNS starts when the agent reads the record.
func Install(n *Namespace, s *Spec, dir string) (*Installed, error) {
	return install(n, s, dir, Record{})
}

// errInstalledByCommand means that a rule does not replace the installation of a command, and
// errInstalledForPod that only [Pods] replaces that of a pod.
var (
	errInstalledByCommand = errors.New("the namespace has an installation by nearside intercept install")
	errInstalledForPod    = errors.New("the agent redirects this namespace for a Dataplane with the label " +
		"nearside.io/redirect: pod; change the annotations of its pod instead")
)

// install is [Install] for a rule, for a pod, or for a command, as the other fields of the record
// say.
func install(n *Namespace, s *Spec, dir string, r Record) (*Installed, error) {
	out, err := Plan(s)
	if err != nil {
		return nil, err
	}
	if err := makeRecordDir(dir); err != nil {
		return nil, err // fail before anything is redirected
	}
	unlock, err := lockRecords(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	before := Record{}
	if old, err := readRecord(recordPath(dir, n.Inode)); err == nil {
		before = *old
	}
	switch {
	case !r.byCommand() && before.Inode != 0 && before.byCommand():
		return nil, errInstalledByCommand
	case r.Dataplane == "" && before.Dataplane != "":
		return nil, errInstalledForPod
	}
	if err := out.load(n, s); err != nil {
		return nil, err
	}
	r.Netns, r.Inode, r.Spec = n.Path, n.Inode, *s
	if err := r.write(dir); err != nil {
		return nil, err
	}
	if s.DNSPort != 0 {
		which, err := openStreams(n)
		if err != nil {
			return out, err
		}
		if out.Ended, err = deleteEntries(n, which); err != nil {
			return out, err
		}
	}
	if before.Inode != 0 { // entries of ports that are no longer used
		was := redirected(&before.Spec)
		now := redirected(s)
		ended, err := deleteEntries(n, func(f *flow) bool { return was(f) && !now(f) })
		out.Ended += ended
		return out, err
	}
	return out, nil
}

// load loads the ruleset, without optional features that the kernel lacks.
func (out *Installed) load(n *Namespace, s *Spec) error {
	err := out.Ruleset.load(n)
	var needs *NeedsError
	if err == nil || errors.As(err, &needs) {
		return err
	}
	cgroups, cerr := findCgroups(s.Cgroups)
	if cerr != nil {
		return cerr
	}
	out.Ruleset = NewRuleset(s, cgroups, false)
	if out.Ruleset.load(n) != nil {
		if missing := probe(n, s); missing != nil {
			return missing
		}
		return err
	}
	out.Notes = append(out.Notes,
		fmt.Sprintf("the kernel lacks conntrack timeouts per rule (module nfnetlink_cttimeout, "+
			"CONFIG_NF_CT_NETLINK_TIMEOUT): conntrack retains each redirected query for 30 s instead of %d s", udpEntryTime))
	return nil
}

// restore reloads the ruleset of a record, for example after "nft flush ruleset". It reports
// whether the record still exists.
func (r *Record) restore(n *Namespace, dir string) (bool, error) {
	unlock, err := lockRecords(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := readRecord(recordPath(dir, r.Inode))
	if err != nil || !now.equal(r) {
		return false, ignoreMissing(err) // another process removed it
	}
	out, err := Plan(&now.Spec)
	if err != nil {
		return true, err
	}
	return true, out.load(n, &now.Spec)
}

// move sets the path of the record to another one of the same namespace. It reports whether the
// record still exists.
func (r *Record) move(path, dir string) (bool, error) {
	unlock, err := lockRecords(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := readRecord(recordPath(dir, r.Inode))
	if err != nil || !now.same(r) {
		return false, ignoreMissing(err) // another process removed it
	}
	r.Netns = path
	return true, r.write(dir)
}

// Uninstall deletes the table and the record, and resets the redirected connections. It reports
// whether anything was installed.
func Uninstall(n *Namespace, dir string) (bool, error) {
	path := recordPath(dir, n.Inode)
	if _, err := os.Stat(dir); err == nil {
		unlock, err := lockRecords(dir)
		if err != nil {
			return false, err
		}
		defer unlock()
	}
	r, err := readRecord(path)
	if err != nil {
		// best guess without a record
		r = &Record{Spec: Spec{DNSPort: DefaultDNSPort, Outbound: DefaultOutboundPort, Inbound: DefaultInboundPort}}
	}
	was, err := unload(n)
	if err != nil {
		return false, err
	}
	if was {
		if _, err := deleteEntries(n, redirected(&r.Spec)); err != nil {
			return was, err
		}
	}
	if err := os.Remove(path); err == nil {
		was = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return was, fmt.Errorf("remove the record: %w", err)
	}
	return was, nil
}
