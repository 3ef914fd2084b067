package peers

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// The engine compares its entries with those of peers. This comparison covers what the store holds,
// uses streams instead of packets, and finds the keys: two nodes compare one digest, then the
// digests of buckets of keys, and then the versions of the keys in buckets that differ.
const (
	compareEvery   = 10 * time.Second // interval while a member differs; otherwise up to three times as long
	compareAtOnce  = 8                // members compared at once
	compareBuckets = 256
	maxCompared    = 1000 // entries of this node in one comparison
	maxEntries     = 4000 // in one answer, which must be smaller than [gossip.MaxQuestion]
	maxDiffs       = 1000 // differences to remember for each member
)

// Questions about entries; see [question].
const (
	askBuckets = "buckets" // the answer is a bucketsAnswer
	askEntries = "entries" // of Buckets; the answer is an entriesAnswer
)

type bucketsAnswer struct {
	Root    string   `json:"root"` // of the engine
	Store   string   `json:"store"`
	Buckets []string `json:"buckets"`
}

// entriesAnswer has versions by key. A non-empty Last is the last key of an incomplete answer.
type entriesAnswer struct {
	Entries map[string]string `json:"entries"`
	Last    string            `json:"last,omitempty"`
	Refused map[string]string `json:"refused,omitempty"` // why the node does not apply other versions
}

// difference is an entry that is not equal on this node and a member.
type difference struct {
	here, there string    // versions; "": missing
	reason      string    // why a node does not apply the newer version; "": unknown
	since       time.Time // first comparison that found these versions
}

// entries returns the version of each resource in the pool, as the store has it, and a digest of
// the items of each node. Deleted resources are missing: nodes drop tombstones at different times.
func (s *Source) entries() map[string]string {
	out := map[string]string{}
	for _, r := range s.o.Store.Versions() {
		if !r.Deleted {
			h := fnv.New64a()
			_, _ = h.Write(r.Body)
			out[fileKey(resource.Key(r.Key))] = fmt.Sprintf("%s-%016x", r.ID(), h.Sum64())
		}
	}
	for _, o := range s.node.Owned() {
		h := fnv.New64a()
		for _, i := range o.Items {
			fmt.Fprintf(h, "%q %d\n", i.Key, len(i.Body))
			_, _ = h.Write(i.Body)
		}
		out["node "+cmp.Or(o.Name, o.Node.String())] = fmt.Sprintf("%d-%016x", o.Epoch, h.Sum64())
	}
	return out
}

func bucketOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % compareBuckets)
}

// bucketsOf returns the digest of each bucket, and of all.
func bucketsOf(entries map[string]string) (buckets []string, all string) {
	sums := make([]uint64, compareBuckets)
	for key, version := range entries {
		h := fnv.New64a()
		fmt.Fprintf(h, "%q %q", key, version)
		sums[bucketOf(key)] ^= h.Sum64()
	}
	h := fnv.New64a()
	for _, x := range sums {
		text := fmt.Sprintf("%016x", x)
		buckets = append(buckets, text)
		_, _ = h.Write([]byte(text))
	}
	return buckets, hex.EncodeToString(h.Sum(nil))
}

// digestsFor is how long the digests of buckets are reused without a change of the store or of the
// engine.
const digestsFor = 5 * time.Minute

// bucketCache has the answer to askBuckets for a revision of the store.
type bucketCache struct {
	bucketsAnswer
	revision uint64
	until    time.Time // zero: empty
}

// digests returns the digests of this node's buckets.
func (s *Source) digests() bucketsAnswer {
	root, revision, now := s.root(), s.o.Store.Snapshot().Revision(), time.Now()
	s.mu.Lock()
	c := s.buckets
	s.mu.Unlock()
	if c.Root != root || c.revision != revision || now.After(c.until) {
		c.Root, c.revision, c.until = root, revision, now.Add(digestsFor)
		c.Buckets, c.Store = bucketsOf(s.entries())
		s.mu.Lock()
		s.buckets = c
		s.mu.Unlock()
	}
	return c.bucketsAnswer
}

// answerEntries answers askEntries.
func (s *Source) answerEntries(buckets []int) entriesAnswer {
	out := entriesAnswer{Entries: map[string]string{}, Refused: map[string]string{}}
	wanted := map[int]bool{}
	for _, b := range buckets {
		wanted[b] = true
	}
	all := s.entries()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !wanted[bucketOf(key)] {
			continue
		}
		if len(out.Entries) == maxEntries {
			break
		}
		out.Entries[key], out.Last = all[key], key
	}
	if len(out.Entries) < maxEntries {
		out.Last = ""
	}
	for key, reason := range s.refusals() {
		if wanted[bucketOf(key)] && len(out.Refused) < maxCompared {
			out.Refused[key] = reason
		}
	}
	return out
}

// compareLoop compares this node with a random member every 10 to 30 s, and with members that
// differ every 10 s.
func (s *Source) compareLoop(ctx context.Context) {
	for {
		wait := compareEvery
		if s.mu.Lock(); len(s.diffs) == 0 {
			wait += rand.N(2 * compareEvery) // #nosec G404 -- spreads load
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			s.compareSome(ctx)
		}
	}
}

// compareSome compares this node with a random live member, and with members that differed.
func (s *Source) compareSome(ctx context.Context) {
	others := s.others()
	live := map[engine.NodeID]bool{}
	for _, m := range others {
		live[m.Node] = true
	}
	// #nosec G404 -- spreads load
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	s.mu.Lock()
	maps.DeleteFunc(s.diffs, func(id engine.NodeID, _ map[string]difference) bool { return !live[id] })
	var selected []gossip.Member
	for i, m := range others {
		if _, differs := s.diffs[m.Node]; (differs || i == 0) && len(selected) < compareAtOnce {
			selected = append(selected, m)
		}
	}
	s.mu.Unlock()
	for _, r := range askAll[bucketsAnswer](ctx, s, question{Ask: askBuckets}, selected) {
		if r.err == nil && ctx.Err() == nil {
			s.compareWith(ctx, r.member, &r.got)
		}
	}
}

// compareWith records the differences to a member that has sent the digests of its buckets.
func (s *Source) compareWith(ctx context.Context, m gossip.Member, theirs *bucketsAnswer) {
	if ours := s.digests(); ours.Store == theirs.Store {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.diffs, m.Node)
		if theirs.Root == ours.Root {
			delete(s.differs, m.Node)
		}
		return
	}
	own := s.entries()
	buckets, _ := bucketsOf(own)
	count := make([]int, compareBuckets)
	for key := range own {
		count[bucketOf(key)]++
	}
	var ask []int
	n := 0
	for b := range min(len(theirs.Buckets), compareBuckets) {
		if buckets[b] != theirs.Buckets[b] && (len(ask) == 0 || n+count[b] <= maxCompared) {
			ask, n = append(ask, b), n+count[b]
		}
	}
	r := askAll[entriesAnswer](ctx, s, question{Ask: askEntries, Buckets: ask}, []gossip.Member{m})[0]
	if r.err != nil {
		return
	}
	found := entryDiffs(own, &r.got, ask)
	refused := s.refusals()
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.diffs[m.Node]
	for key, d := range found {
		if d.reason = r.got.Refused[key]; d.reason != "" {
			d.reason += " there"
		} else if why := refused[key]; why != "" {
			d.reason = why + " here"
		}
		d.since = now
		if k := known[key]; k.here == d.here && k.there == d.there && !k.since.IsZero() {
			d.since = k.since
		}
		found[key] = d
	}
	s.diffs[m.Node] = found
}

// entryDiffs returns the differences in some buckets.
func entryDiffs(own map[string]string, theirs *entriesAnswer, buckets []int) map[string]difference {
	out := map[string]difference{}
	add := func(key string) {
		here, there := own[key], theirs.Entries[key]
		inAnswer := theirs.Last == "" || key <= theirs.Last
		if here != there && inAnswer && len(out) < maxDiffs && slices.Contains(buckets, bucketOf(key)) {
			out[key] = difference{here: here, there: there}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		add(key)
	}
	for _, key := range slices.Sorted(maps.Keys(theirs.Entries)) {
		add(key)
	}
	return out
}

// refusals returns why this node does not apply versions of the pool, by key.
func (s *Source) refusals() map[string]string {
	out := map[string]string{}
	list, _ := s.node.Refusals()
	for i := range list {
		r := &list[i]
		key := fileKey(resource.Key(r.Key))
		if r.Node != (engine.NodeID{}) {
			key = "node " + cmp.Or(s.nameOf(r.Node), r.Node.String())
		}
		if out[key] == "" {
			out[key] = refusalText(r)
		}
	}
	return out
}

// nameOf returns the name that a node publishes, or "".
func (s *Source) nameOf(id engine.NodeID) string {
	o, _ := s.node.OwnedBy(id)
	return o.Name
}

// refusalText says why a node does not apply a version.
func refusalText(r *engine.Refusal) string {
	switch r.Reason {
	case engine.ReasonClock:
		return "parked because its date is in the future"
	case engine.ReasonDamaged:
		return "damaged on disk"
	case engine.ReasonLimbo:
		return "in limbo"
	case engine.ReasonLimit:
		return "refused by a limit (" + r.Detail + ")"
	}
	return "refused because it is old"
}

// lasting returns the keys that have differed from a member for longer than differsTooLong, sorted,
// and for how long the first one has. The caller holds mu.
func (s *Source) lasting(id engine.NodeID) (keys []string, longest time.Duration) {
	now := s.o.Now()
	for key, d := range s.diffs[id] {
		if age := now.Sub(d.since); age > differsTooLong {
			keys = append(keys, key)
			longest = max(longest, age)
		}
	}
	slices.Sort(keys)
	return keys, longest
}

// text says how an entry differs.
func (d *difference) text() string {
	out := "another version there"
	switch {
	case d.here == "":
		out = "missing here"
	case d.there == "":
		out = "missing there"
	}
	if d.reason != "" {
		out += ", " + d.reason
	}
	return out
}

// decodeQuestion parses a question. It returns an empty one for questions to others.
func decodeQuestion(text []byte) (q question) {
	if json.Unmarshal(text, &q) != nil {
		return question{}
	}
	return q
}
