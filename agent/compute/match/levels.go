package match

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// maxListed is the maximum length of a step's lists. Step.More counts the omitted items.
const maxListed = 48

// levels records the path through the tree of filter chains. A nil levels records nothing.
type levels struct {
	steps *[]Step
	seen  *Seen
	x     *chainIndex
	alive []bool // by chain: still below the node
}

func (r *levels) start(x *chainIndex) {
	if r == nil {
		return
	}
	r.x, r.alive = x, make([]bool, len(x.chains))
	x.root.collect(func(c int) { r.alive[c] = true })
}

// note adds a step: the chosen key below a node and its child, or nil if nothing matched. It skips
// levels without criteria.
func (r *levels) note(l *indexLevel, chosen key, n, next *node) {
	if r == nil {
		return
	}
	step := Step{Level: l.Level, Input: l.input(r.seen)}
	for _, e := range l.sorted(n) {
		step.Candidates = append(step.Candidates, l.keys[e.key].String())
	}
	if next != nil {
		step.Choice = chosen.String()
	}
	if more := len(step.Candidates) - maxListed; more > 0 {
		step.Candidates = step.Candidates[:maxListed]
		step.More = more
	}
	stay := make([]bool, len(r.alive))
	next.collect(func(c int) { stay[c] = true })
	for c, was := range r.alive {
		if !was || stay[c] {
			continue
		}
		if len(step.Eliminated) == maxListed {
			step.More++
			continue
		}
		step.Eliminated = append(step.Eliminated, Eliminated{Name: ChainName(r.x.chains[c], c),
			Why: whyNot(l, r.x.chains[c].GetFilterChainMatch(), r.seen, step.Choice)})
	}
	if p, both := l.ambiguous(n); both {
		step.Note = fmt.Sprintf("chains with %s stand beside chains without a prefix: Envoy does not define which of them "+
			"it finds", p)
	}
	r.alive = stay
	if len(step.Candidates) == 1 && step.Candidates[0] == anyValue {
		return
	}
	*r.steps = append(*r.steps, step)
}

// ChainName returns the name of a chain, or its position in the list.
func ChainName(c *listenerv3.FilterChain, i int) string {
	if c.GetName() != "" {
		return c.GetName()
	}
	return fmt.Sprintf("#%d", i)
}

// whyNot returns why a chain was eliminated at the level where choice was taken, or "".
func whyNot(l *indexLevel, m *listenerv3.FilterChainMatch, s *Seen, choice string) string {
	wants := l.wants(m)
	own := strings.Join(wants[:min(len(wants), 8)], ", ")
	if !l.fits(m, s) {
		return "wants " + own
	}
	if len(wants) == 0 {
		own = anyValue
	}
	if l.Level == LevelApplicationProtocol && choice != anyValue {
		return fmt.Sprintf("fits with %s, but the client prefers %s, which is final", own, choice)
	}
	return fmt.Sprintf("fits with %s, but %s is more specific and final", own, choice)
}
