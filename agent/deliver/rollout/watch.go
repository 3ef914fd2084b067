package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// holding says what a client has under one name where that differs from, or is not yet in, the list
// of its watch.
type holding struct {
	kind    holdingKind
	version string // of holdsVersion
}

type holdingKind uint8

const (
	// holdsVersion: the client said at the start of the stream that it has this version.
	holdsVersion holdingKind = iota
	// holdsDue: the client asked for the name and must be answered, whatever it has.
	holdsDue
	// holdsStale: the client rejected the response with it; the next push sends it again.
	holdsStale
)

// typeWatch is what one stream knows and has of one type. It is guarded by the mu of the node.
type typeWatch struct {
	proxy *proxy
	rank  int
	delta bool
	// sub is the subscription as the transport keeps it, nil before the first one. See
	// Stream.subscribing.
	sub      Subscription
	bytes    int                 // delta: of the names, or more
	wildcard bool                // it was one at the last request
	names    map[string]struct{} // state of the world: the names of the last request
	// open says that the handler waits for a response; push hands one over and is only called while
	// open.
	open bool
	push func(*Response) bool

	base []*draft.Resource // what the client was brought up to, as far as it is subscribed
	over map[string]holding

	fresh     bool   // nothing was compared or sent yet
	claimed   string // state of the world: the version that the client said it has, while fresh
	owed      bool   // the subscription needs an answer even if there is nothing to say
	responded bool   // a response was made

	// quietFor is the version of the list whose response was rejected: as long as it stands only due
	// names are sent.
	quietFor string

	ticket  *Response   // handed to the stream, not yet sent
	unacked []*Response // sent, neither accepted nor rejected; the oldest first
}

// maxUnacked bounds the responses of one type whose acknowledgement is awaited.
const maxUnacked = 16

// Response is one response on its way to the client and, once sent, the memory of it until it is
// acknowledged. What is exported must not be changed.
type Response struct {
	Rank      int // of its type
	Send      []*draft.Resource
	Removed   []string
	Version   string
	Published time.Time // when its config was published; zero when it answers a request

	w              *typeWatch
	cause          string
	base           []*draft.Resource  // what the client has afterwards
	before         []*draft.Resource  // what it had when this was sent
	list           string             // version of the config's list that it was made from
	madeAt         uint64             // revision of the store with which that list came up
	owed           bool               // it gives the answer that was owed
	warms          bool               // it has clusters that are new to the client
	settled        map[string]holding // it accounts for these
	initialVersion map[string]string  // versions that the client came with, of what is sent in others; set once it is sent
	nonce          string
}

// noteCame keeps of what the ticket accounts for the versions that the client came with.
func (t *Response) noteInitialVersions() {
	for _, r := range t.Send {
		if h, ok := t.settled[r.Name]; ok && h.kind == holdsVersion && h.version != r.Version {
			if t.initialVersion == nil {
				t.initialVersion = map[string]string{}
			}
			t.initialVersion[r.Name] = h.version
		}
	}
}

// wants says whether the client is subscribed to a name.
func (w *typeWatch) wants(name string) bool {
	if w.sub == nil {
		return false
	}
	if w.sub.IsWildcard() {
		return true
	}
	if _, ok := w.sub.SubscribedResources()[name]; ok {
		return true
	}
	for prefix := range w.sub.SubscribedPrefixes() {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// fits says whether the names of the subscription are not too long together after more were
// subscribed to.
func (w *typeWatch) fits(more []string) bool {
	for _, name := range more {
		w.bytes += len(name)
	}
	if w.bytes <= maxNameBytes {
		return true
	}
	// Some of those counted may be there twice, or no longer.
	w.bytes = 0
	for name := range w.sub.SubscribedResources() {
		w.bytes += len(name)
	}
	for name := range w.sub.SubscribedPrefixes() {
		w.bytes += len(name)
	}
	return w.bytes <= maxNameBytes
}

// full says that a response of this type is the whole state: what is absent from it is removed
// (state of the world, listeners and clusters only).
func (w *typeWatch) full() bool {
	t := draft.Types[w.rank]
	return !w.delta && (t == draft.TypeCluster || t == draft.TypeListener)
}

// setHolding notes what the client has under a name.
func (w *typeWatch) setHolding(name string, h holding) {
	if w.over == nil {
		w.over = map[string]holding{}
	}
	w.over[name] = h
}

// dropUnwanted forgets the names that the client is not subscribed to.
func (w *typeWatch) dropUnwanted() {
	for name := range w.over {
		if !w.wants(name) {
			delete(w.over, name)
		}
	}
}

// markStale notes that it is not known what a client has under a name, which it is told with the
// next push.
func (w *typeWatch) markStale(name string) {
	if h, ok := w.over[name]; !ok || h.kind != holdsDue {
		w.setHolding(name, holding{kind: holdsStale})
	}
}

// asked says that the client waits for an answer.
func (w *typeWatch) asked() bool {
	if w.owed {
		return true
	}
	for _, h := range w.over {
		if h.kind == holdsDue {
			return true
		}
	}
	return false
}

// change is what a client needs to get from what it has to a list.
type change struct {
	send    []*draft.Resource // sorted by name; the whole state when the type is full
	updated []*draft.Resource // those of send that the client does not have in these bytes
	removed []string          // sorted
	base    []*draft.Resource // what the client has afterwards
	answer  bool              // to be sent even if it is empty
	waiting bool              // there are removals that wait for their referrers
}

func (c *change) empty() bool { return len(c.send) == 0 && len(c.removed) == 0 && !c.answer }

// adds says that others may have to wait for it: it brings more than removals.
func (c *change) adds() bool { return len(c.updated) > 0 || c.answer }

// changeTo compares what the client has with the list it should have. mayRemove says whether
// resources that are not in the list may be removed now; if not they stay and waiting is set.
func (w *typeWatch) changeTo(want []*draft.Resource, quiet bool, mayRemove func() bool) change {
	if quiet {
		return w.changeDue()
	}
	if draft.SameList(w.base, want) && len(w.over) == 0 {
		return change{base: want, answer: w.owed, send: w.whole(want, w.owed)}
	}
	var c change
	var gone []*draft.Resource // the client has them, by the list, and should not
	left, holdingsGone := w.surplus(want)
	canRemove := true
	if len(left)+len(holdingsGone) > 0 {
		if canRemove = mayRemove(); !canRemove {
			want = draft.Merge(want, left, nil)
			c.waiting = true
		} else {
			gone = left
		}
	}

	c.base, c.answer = want, w.owed
	i := 0
	for _, r := range want {
		for i < len(w.base) && w.base[i].Name < r.Name {
			i++
		}
		if i < len(w.base) && w.base[i] == r && len(w.over) == 0 || !w.wants(r.Name) {
			continue
		}
		have := ""
		if i < len(w.base) && w.base[i].Name == r.Name {
			have = w.base[i].Version
		}
		if h, ok := w.over[r.Name]; ok {
			have = h.version // "" for those that are due or stale
		}
		if have != r.Version {
			c.updated = append(c.updated, r)
		}
	}
	for _, r := range gone {
		c.removed = append(c.removed, r.Name)
	}
	for _, name := range holdingsGone {
		switch h := w.over[name]; {
		case !w.delta:
			// There is no way to say "removed" but the absence from an answer.
			c.answer = c.answer || h.kind == holdsDue || w.full() && canRemove
		case canRemove || h.kind == holdsDue:
			c.removed = append(c.removed, name)
		}
	}
	slices.Sort(c.removed)
	c.removed = slices.Compact(c.removed)
	c.send = c.updated
	if !w.delta && !w.full() {
		c.removed = nil // endpoints, routes and secrets are left to go with what refers to them
	}
	if w.full() {
		c.send = w.whole(want, c.answer || len(c.updated) > 0 || len(c.removed) > 0)
		if len(c.removed) > 0 && len(c.send) == 0 {
			c.answer = true
		}
	}
	return c
}

// changeDue is changeTo after a rejection: only names that were asked for since are answered.
func (w *typeWatch) changeDue() change {
	c := change{base: w.base}
	for name, h := range w.over {
		if h.kind != holdsDue {
			continue
		}
		if r := draft.Find(w.base, name); r != nil && w.wants(name) {
			c.updated = append(c.updated, r)
		} else if w.delta {
			c.removed = append(c.removed, name)
		} else {
			c.answer = true
		}
	}
	slices.SortFunc(c.updated, func(a, b *draft.Resource) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(c.removed)
	c.send = c.updated
	if w.full() {
		c.send = w.whole(w.base, !c.empty())
	}
	return c
}

// surplus returns what the client has and the list does not: resources of the base, and names of
// holdings, both sorted and without those that it is not subscribed to or that are spared.
func (w *typeWatch) surplus(want []*draft.Resource) (left []*draft.Resource, over []string) {
	if !draft.SameList(w.base, want) {
		j := 0
		for _, r := range w.base {
			for j < len(want) && want[j].Name < r.Name {
				j++
			}
			if (j == len(want) || want[j].Name != r.Name) && w.wants(r.Name) && !w.proxy.isExcluded(w.rank, r.Name) {
				left = append(left, r)
			}
		}
	}
	for name, h := range w.over {
		if draft.Find(want, name) == nil && draft.Find(left, name) == nil && !w.isLeftUnchanged(name, h) {
			over = append(over, name)
		}
	}
	slices.Sort(over)
	return left, over
}

// whole returns all resources of a list that the client is subscribed to, if they are to be sent
// and the type is full.
func (w *typeWatch) whole(list []*draft.Resource, wanted bool) []*draft.Resource {
	if !wanted || !w.full() {
		return nil
	}
	if w.sub.IsWildcard() {
		return list
	}
	var out []*draft.Resource
	for _, r := range list {
		if w.wants(r.Name) {
			out = append(out, r)
		}
	}
	return out
}

// settleHoldings takes the holdings that a change accounts for out of the watch and returns them.
func (w *typeWatch) clearHoldings(base []*draft.Resource, quiet, waiting bool) (settled map[string]holding) {
	stays := func(name string, h holding) bool {
		return quiet && h.kind != holdsDue || (waiting && h.kind != holdsDue || w.isLeftUnchanged(name, h)) &&
			draft.Find(base, name) == nil
	}
	some := false
	for name, h := range w.over {
		if some = stays(name, h); some {
			break
		}
	}
	if !some { // as a rule
		settled, w.over = w.over, nil
		return settled
	}
	for name, h := range w.over {
		if stays(name, h) {
			continue
		}
		if settled == nil {
			settled = map[string]holding{}
		}
		settled[name] = h
		delete(w.over, name)
	}
	return settled
}

// revoke undoes the making of a ticket that will not be sent.
func (w *typeWatch) revoke() {
	t := w.ticket
	if t == nil {
		return
	}
	w.ticket = nil
	w.owed = w.owed || t.owed
	for name, h := range t.settled {
		if _, ok := w.over[name]; !ok {
			w.setHolding(name, h)
		}
	}
}

// count returns how many resources the client has.
func (w *typeWatch) count() int {
	if w.sub == nil || w.sub.IsWildcard() {
		return len(w.base)
	}
	n := 0
	for _, r := range w.base {
		if w.wants(r.Name) {
			n++
		}
	}
	return n
}
