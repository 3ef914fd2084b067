package intercept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/base/plural"
)

// StateNone is the state of a namespace without an installation.
const StateNone = "none"

// Report is the state of the kernel for one namespace.
type Report struct {
	Netns string `json:"netns,omitempty"`
	Inode uint64 `json:"inode"`
	State string `json:"state"`
	// Families are the redirected address families.
	Families []string `json:"families,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Rule     string   `json:"rule,omitempty"` // of intercept.watch; "" if a command installed it
	// Dataplane is that of the pod for which it was installed.
	Dataplane string   `json:"dataplane,omitempty"`
	Spec      *Spec    `json:"spec,omitempty"` // from the record; nil without one
	Counts    Counts   `json:"counts"`
	Canaries  []Canary `json:"canaries,omitempty"`
}

// Counts are numbers since the installation.
type Counts struct {
	Queries     uint64 `json:"queries"`     // over UDP
	Connections uint64 `json:"connections"` // over TCP, including connections to name servers
	Inbound     uint64 `json:"inbound"`
}

// Good reports whether everything that is installed works.
func (r *Report) Good() bool { return r.State == StateActive || r.State == StateTCPOnly }

// Records returns the records of a directory, and an error for each unreadable one.
func Records(dir string) ([]Record, []error) { return readRecords(dir) }

// Inspect reports on a namespace. If DNS is redirected, it sends canaries.
func Inspect(ctx context.Context, n *Namespace, dir string) (*Report, error) {
	out := &Report{Netns: n.Path, Inode: n.Inode, State: StateNone}
	rec, err := readRecord(recordPath(dir, n.Inode))
	switch {
	case err == nil:
		out.Spec, out.Rule, out.Dataplane = &rec.Spec, rec.Rule, rec.Dataplane
	case !errors.Is(err, fs.ErrNotExist):
		out.Reason = err.Error()
	}
	c, err := n.open()
	if err != nil {
		return nil, err
	}
	t, err := n.tableOf(c)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if out.Spec != nil {
			out.State, out.Reason = StateWaiting, "the table inet "+Table+" is missing; run nearside intercept install again"
		}
		return out, nil
	}
	for chain, to := range map[string]*uint64{
		zoneChain:    &out.Counts.Queries,
		outputChain:  &out.Counts.Connections,
		inboundChain: &out.Counts.Inbound,
	} {
		if *to, err = packets(c, chain); ignoreMissing(err) != nil {
			return nil, n.explain(fmt.Errorf("read the counters of the chain %s: %w", chain, err))
		}
	}
	live, err := liveFamilies(c)
	if err != nil {
		return nil, n.explain(fmt.Errorf("read the set %s: %w", liveSet, err))
	}
	for i, f := range [...]byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		if slices.Contains(live, f) {
			out.Families = append(out.Families, familyName(i == 1))
		}
	}
	switch {
	case out.Spec == nil:
		out.State = StateWaiting
		if out.Reason == "" {
			out.Reason = "the table inet " + Table + " has no record in " + dir +
				"; set the agent's run directory with --run-dir, or install again"
		}
		return out, nil
	case out.Spec.DNSPort == 0:
		out.State = StateTCPOnly
		return out, nil
	case len(live) == 0:
		out.State, out.Reason = StateWaiting,
			"no agent renews the redirection, so queries go to the real servers: the agent is "+
				"not running, lacks a capability, or its resolver does not respond; see nearside check and the agent's log"
		return out, nil
	case len(live) == 1:
		out.State, out.Reason = StatePartly, "the resolver does not respond for the other family; see the agent's log"
	default:
		out.State = StateActive
	}
	return out, out.sendCanaries(ctx, n)
}

// sendCanaries sends canaries as a user whose queries are redirected.
func (r *Report) sendCanaries(ctx context.Context, n *Namespace) error {
	uid, ok := r.Spec.canaryUser()
	if !ok {
		return nil // only processes in cgroups are redirected
	}
	list, err := SendCanaries(ctx, n, uid)
	if err != nil {
		return err
	}
	r.Canaries = list
	if lost := lostCanaries(list, r.Families); lost != "" {
		r.State, r.Reason = StateBroken, lost
	}
	return nil
}

// lostCanaries describes the canaries of redirected families that did not reach the agent although
// their server can be reached. It returns "" if there are none.
func lostCanaries(list []Canary, families []string) string {
	var lost []string
	for _, c := range list {
		if !c.Redirected && !c.Unreachable && slices.Contains(families, c.Family) {
			lost = append(lost, c.Reason)
		}
	}
	if len(lost) == 0 {
		return ""
	}
	const most = 4
	more := ""
	if n := len(lost) - most; n > 0 {
		lost, more = lost[:most], plural.Form(n, "; and 1 more", "; and %d more")
	}
	return "the rules are loaded, but queries to other servers did not reach the agent; find the ruleset that precedes " +
		"them, or that has NOTRACK rules for port 53, with nft list ruleset: " + strings.Join(lost, "; ") + more
}

// canaryUser selects a user whose queries are redirected. -1 is the user of this process.
func (s *Spec) canaryUser() (uid int, ok bool) {
	switch {
	case len(s.Users) > 0:
		return int(s.Users[0]), true
	case len(s.Cgroups) > 0:
		return 0, false
	case !slices.Contains(s.ExcludeUsers, uint32(os.Geteuid())):
		return -1, true
	}
	uid = overflowUID
	for slices.Contains(s.ExcludeUsers, uint32(uid)) {
		uid--
	}
	return uid, true
}

// overflowUID is an unprivileged user that exists on all systems.
const overflowUID = 65534
