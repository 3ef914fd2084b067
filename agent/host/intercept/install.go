package intercept

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Installed says what [Install] did.
type Installed struct {
	Ruleset *Ruleset `json:"-"`
	// Notes are what a user should know: what the kernel lacks without harm, and cgroups that do not
	// exist.
	Notes []string `json:"notes,omitempty"`
	// Ended counts the open connections that were ended, so that they are made anew.
	Ended uint `json:"ended"`
}

// Plan makes the ruleset for a namespace without loading it.
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
			out.Notes = append(out.Notes, fmt.Sprintf("the cgroup %s does not exist; the agent adds it when it does", c.Path))
		}
	}
	return out, nil
}

// Install loads the ruleset of a spec in a namespace, in the place of one that is there, and writes
// the record for the agent in dir, which is [DirName] below its run directory. DNS is redirected
// once the agent has seen the record.
func Install(n *Namespace, s *Spec, dir string) (*Installed, error) {
	out, err := Plan(s)
	if err != nil {
		return nil, err
	}
	if err := makeRecordDir(dir); err != nil {
		return nil, err // before anything is redirected
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
	if err := out.load(n, s); err != nil {
		return nil, err
	}
	r := Record{Netns: n.Path, Inode: n.Inode, Spec: *s}
	if err := r.write(dir); err != nil {
		return nil, err
	}
	if s.DNSPort != 0 {
		which, err := openStreams(n)
		if err != nil {
			return out, err
		}
		if out.Ended, err = forget(n, which); err != nil {
			return out, err
		}
	}
	if before.Inode != 0 { // what went to ports that nobody redirects to any more
		was := redirected(&before.Spec)
		now := redirected(s)
		ended, err := forget(n, func(f *flow) bool { return was(f) && !now(f) })
		out.Ended += ended
		return out, err
	}
	return out, nil
}

// load loads the ruleset, and does without what a kernel may lack.
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
		fmt.Sprintf("the kernel lacks timeouts of conntrack by rule (module nfnetlink_cttimeout, "+
			"CONFIG_NF_CT_NETLINK_TIMEOUT): each redirected query is remembered for 30 s instead of %d", udpEntryTime))
	return nil
}

// restore loads what a record says once more, as after "nft flush ruleset". It reports whether the
// record is still there.
func (r *Record) restore(n *Namespace, dir string) (bool, error) {
	unlock, err := lockRecords(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := readRecord(recordPath(dir, r.Inode))
	if err != nil || !now.equal(r) {
		return false, ignoreMissing(err) // somebody else has taken it away
	}
	out, err := Plan(&now.Spec)
	if err != nil {
		return true, err
	}
	return true, out.load(n, &now.Spec)
}

// Uninstall deletes the table and the record, and ends the connections that were redirected. It
// reports whether there was anything.
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
		// as far as is known
		r = &Record{Spec: Spec{DNSPort: DefaultDNSPort, Outbound: DefaultOutboundPort, Inbound: DefaultInboundPort}}
	}
	was, err := unload(n)
	if err != nil {
		return false, err
	}
	if was {
		if _, err := forget(n, redirected(&r.Spec)); err != nil {
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
