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
)

// States that only who looks from outside knows.
const (
	StateNone   = "none"   // nothing is installed
	StateBroken = "broken" // the rules are there, and a canary is not redirected by them
)

// Report is what is in the kernel about one namespace.
type Report struct {
	Netns string `json:"netns,omitempty"`
	Inode uint64 `json:"inode"`
	State string `json:"state"`
	// Families are those whose DNS is redirected.
	Families []string `json:"families,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Spec     *Spec    `json:"spec,omitempty"` // of the record; absent: there is none
	Counts   Counts   `json:"counts"`
	Canaries []Canary `json:"canaries,omitempty"`
}

// Counts say how much was redirected since the installation.
type Counts struct {
	Queries     uint64 `json:"queries"`     // over UDP
	Connections uint64 `json:"connections"` // over TCP, those to name servers too
	Inbound     uint64 `json:"inbound"`
}

// Good reports whether everything that is installed is at work.
func (r *Report) Good() bool { return r.State == StateActive || r.State == StateTCPOnly }

// Records reads the records of a directory. What cannot be read is left out, and the errors say
// why.
func Records(dir string) ([]Record, []error) { return readRecords(dir) }

// Look reports on a namespace, and sends canaries where DNS is redirected.
func Look(ctx context.Context, n *Namespace, dir string) (*Report, error) {
	out := &Report{Netns: n.Path, Inode: n.Inode, State: StateNone}
	rec, err := readRecord(recordPath(dir, n.Inode))
	switch {
	case err == nil:
		out.Spec = &rec.Spec
	case !errors.Is(err, fs.ErrNotExist):
		out.Reason = err.Error()
	}
	c, err := n.open()
	if err != nil {
		return nil, err
	}
	t, err := tableOf(c)
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
			return nil, explain(fmt.Errorf("read the counters of the chain %s: %w", chain, err), unix.CAP_NET_ADMIN)
		}
	}
	live, err := liveFamilies(c)
	if err != nil {
		return nil, explain(fmt.Errorf("read the set %s: %w", liveSet, err), unix.CAP_NET_ADMIN)
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
			out.Reason = "there is a table inet " + Table + " and no record of it in " + dir +
				"; name the run directory of the agent with --run-dir, or install it again"
		}
		return out, nil
	case out.Spec.DNSPort == 0:
		out.State = StateTCPOnly
		return out, nil
	case len(live) == 0:
		out.State, out.Reason = StateWaiting, "no agent keeps it alive, so that names are asked of the real servers: it is "+
			"not running, lacks a capability, or its resolver does not answer; nearside check and the agent's log say which"
		return out, nil
	case len(live) == 1:
		out.State, out.Reason = StatePartly, "the resolver does not answer for the other family; the agent's log says why"
	default:
		out.State = StateActive
	}
	return out, out.sendCanaries(ctx, n)
}

// sendCanaries asks as somebody whose names are redirected.
func (r *Report) sendCanaries(ctx context.Context, n *Namespace) error {
	uid, ok := r.Spec.canaryUser()
	if !ok {
		return nil // only processes of cgroups are redirected
	}
	list, err := SendCanaries(ctx, n, uid)
	if err != nil {
		return err
	}
	r.Canaries = list
	var lost []string
	for _, c := range list {
		if !c.Redirected && slices.Contains(r.Families, c.Family) {
			lost = append(lost, c.Reason)
		}
	}
	if len(lost) > 0 {
		r.State, r.Reason = StateBroken, "the rules are there, and a question to another server did not come to the agent; "+
			"look for a ruleset that takes it first in nft list ruleset: "+strings.Join(lost, "; ")
	}
	return nil
}

// canaryUser chooses a user whose names are redirected; -1 is that of this process.
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

// overflowUID is a user that everybody has and nobody is.
const overflowUID = 65534
