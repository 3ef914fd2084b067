package intercept

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// loopInterval is the number of refreshes between two checks for loops.
const loopInterval = 30

// canaries is the state of the canaries that the agent sends itself.
type canaries struct {
	next     int      // refreshes until the next ones
	families []string // that were redirected
	reason   string   // why the last ones were lost, or ""
	times    int      // how often they were lost in a row
	arrived  bool     // earlier ones have reached the agent
}

// lost sends canaries if they are due, and returns why they do not reach the agent. After canaries
// have arrived, only a second loss in a row counts, because a single packet may be lost.
func (a *installation) lost(ctx context.Context, families []string) string {
	c := &a.canaries
	uid, ok := a.r.Spec.canaryUser()
	if len(families) == 0 || !ok {
		*c = canaries{}
		return ""
	}
	if c.next--; c.next <= 0 || !slices.Equal(c.families, families) {
		list, err := SendCanaries(ctx, a.n, uid)
		if err != nil {
			list = nil // this process cannot send as the user
		}
		c.next, c.families, c.reason = loopInterval, families, lostCanaries(list, families)
		if c.times++; c.reason == "" {
			c.times, c.arrived = 0, true
		} else if c.next = 5; c.times < 2 {
			c.next = 1
		}
	}
	if c.times < 2 && c.arrived {
		return ""
	}
	return c.reason
}

// checkLoop returns an error if another ruleset redirects queries with the agent's mark, which
// would return to the agent forever. Its probes pass all rulesets, and the loop chain counts and
// drops redirected ones.
func (a *installation) checkLoop(ctx context.Context, families []byte) error {
	if len(families) == 0 {
		return nil
	}
	if a.loops--; a.loops > 0 {
		return nil
	}
	a.loops = loopInterval
	before, err := packets(a.nft, loopChain)
	if err != nil {
		return fmt.Errorf("read the counters of the chain %s: %w", loopChain, err)
	}
	if err := a.n.Do(func() error {
		for _, f := range families {
			if err := sendMarked(ctx, f == unix.NFPROTO_IPV6); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if after, err := packets(a.nft, loopChain); err != nil || after == before {
		return err
	}
	return fmt.Errorf("the agent's own queries are redirected back to it: another ruleset redirects port 53 to port %d "+
		"despite their mark %#x; find it with nft list ruleset", a.r.Spec.DNSPort, Mark)
}
