package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// holding is what a client has under one name if that is not in the list of its watch, or differs
// from it.
type holding struct {
	kind    holdingKind
	version string // for holdsVersion
}

type holdingKind uint8

const (
	// holdsVersion: the client reported this version when the stream started.
	holdsVersion holdingKind = iota
	// holdsDue: the client requested the name and must receive an answer, whatever it has.
	holdsDue
	// holdsStale: the client rejected the response with the name. The next change sends it again.
	holdsStale
)

// typeWatch is the state of one type in a stream. It is guarded by the mu of the proxy.
type typeWatch struct {
	proxy  *proxy
	stream *Stream
	rank   int
	delta  bool
	// sub is the subscription of the transport, nil before the first request. See
	// Stream.subscribing.
	sub      Subscription
	bytes    int                 // delta: upper bound of the size of the names
	wildcard bool                // whether the last request was a wildcard
	names    map[string]struct{} // state of the world: the names of the last request
	// open is set while the handler waits for a response. push hands one over and is only called
	// while open is set.
	open bool
	push func(*Response) bool

	base []*draft.Resource // the resources that the client has and is subscribed to
	over map[string]holding

	fresh     bool   // nothing was compared or sent yet
	claimed   string // state of the world: the version that the client reported, while fresh
	confirms  bool   // the client reported resources, and no response was necessary yet
	owed      bool   // the subscription needs an answer, even if it is empty
	responded bool   // a response was created

	// quietFor is the version of the list whose response was rejected. As long as the list has this
	// version, only requested names are sent.
	quietFor string

	ticket  *Response   // handed to the stream, not sent yet
	unacked []*Response // sent and unanswered, the oldest first
}

// maxUnacked is the maximum number of unanswered responses of one type.
const maxUnacked = 16

// Response is one response. It is stored until the client has answered it. Exported fields must not
// be changed.
type Response struct {
	Rank      int // rank of its type
	Send      []*draft.Resource
	Removed   []string
	Version   string
	Published time.Time // when its config was published; zero if it answers a request

	w       *typeWatch
	cause   string
	base    []*draft.Resource  // what the client has after the response
	before  []*draft.Resource  // what the client had when it was sent
	list    string             // version of the list of the config
	madeAt  uint64             // revision of the store that introduced the list
	owed    bool               // it is the answer that the subscription needed
	warms   bool               // it has clusters that are new to the client
	settled map[string]holding // holdings that it answers
	// versions that the client reported, of resources that are sent in other versions; set when it is
	// sent
	initialVersion map[string]string
	nonce          string
}

// noteInitialVersions records the versions that the client reported for the resources of the
// response.
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

// wants reports whether the client is subscribed to a name.
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

// fits reports whether the names of the subscription are within maxNameBytes after more names were
// added.
func (w *typeWatch) fits(more []string) bool {
	for _, name := range more {
		w.bytes += len(name)
	}
	if w.bytes <= maxNameBytes {
		return true
	}
	// Some names were counted twice, or were removed since.
	w.bytes = 0
	for name := range w.sub.SubscribedResources() {
		w.bytes += len(name)
	}
	for name := range w.sub.SubscribedPrefixes() {
		w.bytes += len(name)
	}
	return w.bytes <= maxNameBytes
}

// full reports whether a response of this type is the whole state, so that absent resources are
// removed. This applies to listeners and clusters in the state-of-the-world protocol.
func (w *typeWatch) full() bool {
	t := draft.Types[w.rank]
	return !w.delta && (t == draft.TypeCluster || t == draft.TypeListener)
}

// setHolding sets what the client has under a name.
func (w *typeWatch) setHolding(name string, h holding) {
	if w.over == nil {
		w.over = map[string]holding{}
	}
	w.over[name] = h
}

// markStale records that it is unknown what a client has under a name. The next change sends the
// resource.
func (w *typeWatch) markStale(name string) {
	if h, ok := w.over[name]; !ok || h.kind != holdsDue {
		w.setHolding(name, holding{kind: holdsStale})
	}
}

// asked reports whether the client waits for an answer.
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

// change is the difference between what a client has and a list.
type change struct {
	send    []*draft.Resource // sorted by name; all resources if the type is full
	updated []*draft.Resource // resources of send that the client does not have in these bytes
	removed []string          // sorted
	base    []*draft.Resource // what the client has afterwards
	answer  bool              // must be sent even if it is empty
	waiting bool              // some removals wait for the resources that refer to them
}

func (c *change) empty() bool { return len(c.send) == 0 && len(c.removed) == 0 && !c.answer }

// adds reports whether the change has more than removals, so that other types may have to wait for
// it.
func (c *change) adds() bool { return len(c.updated) > 0 || c.answer }

// changeTo returns the change from what the client has to the list that it should have. mayRemove
// reports whether resources that are not in the list may be removed now. If not, they stay, and
// waiting is set.
func (w *typeWatch) changeTo(want []*draft.Resource, quiet bool, mayRemove func() bool) change {
	if quiet {
		return w.changeDue()
	}
	if draft.SameList(w.base, want) && len(w.over) == 0 {
		return change{base: want, answer: w.owed, send: w.whole(want, w.owed)}
	}
	var c change
	var gone []*draft.Resource // resources of base that the client should not have
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
		for i < len(w.base) && w.base[i] != r && w.base[i].Name < r.Name {
			i++
		}
		var had *draft.Resource
		if i < len(w.base) && (w.base[i] == r || w.base[i].Name == r.Name) {
			had = w.base[i]
			i++
		}
		if had == r && len(w.over) == 0 || !w.wants(r.Name) {
			continue
		}
		have := ""
		if had != nil {
			have = had.Version
		}
		if h, ok := w.over[r.Name]; ok {
			have = h.version // "" for a name that is due or stale
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
			// This protocol expresses the removal only by absence from a response.
			c.answer = c.answer || h.kind == holdsDue || w.full() && canRemove
		case canRemove || h.kind == holdsDue:
			c.removed = append(c.removed, name)
		}
	}
	slices.Sort(c.removed)
	c.removed = slices.Compact(c.removed)
	c.send = c.updated
	if !w.delta && !w.full() {
		c.removed = nil // clients drop endpoints, routes, and secrets with the resources that refer to them
	}
	if w.full() {
		c.send = w.whole(want, c.answer || len(c.updated) > 0 || len(c.removed) > 0)
		if len(c.removed) > 0 && len(c.send) == 0 {
			c.answer = true
		}
	}
	return c
}

// changeDue returns the change after a rejection, which answers only names that were requested
// since.
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

// surplus returns what the client has and the list does not: resources of base, and names of
// holdings. Both are sorted, and lack names to which the client is not subscribed or that are
// excluded.
func (w *typeWatch) surplus(want []*draft.Resource) (left []*draft.Resource, over []string) {
	if !draft.SameList(w.base, want) {
		j := 0
		for _, r := range w.base {
			if j < len(want) && want[j] == r { // most of them
				j++
				continue
			}
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

// whole returns all subscribed resources of a list if wanted is set and the type is full.
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

// clearHoldings removes the holdings that a change answers and returns them.
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
	if !some { // the usual case
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

// revoke undoes the creation of a response that will not be sent.
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

// count returns the number of resources that the client has.
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
