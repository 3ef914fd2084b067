package peers

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// verify compares the state of all nodes with the changes.
func (w *world) verify() error {
	for _, n := range w.nodes {
		w.noteDropped(n)
		st := n.source.node.Stats()
		if st.Limbo > 0 || st.Parked > 0 || st.Wants > 0 || st.Pulls > 0 || st.Pending > 0 || st.News > 0 || st.Stats.Cloned {
			return fmt.Errorf("node %d is not idle: %+v", n.i, st)
		}
		if list, _ := n.source.node.Refusals(); len(list) > 0 && !w.limited {
			return fmt.Errorf("node %d lists the refusals %+v", n.i, list)
		}
		if err := w.verifyVersions(n); err != nil {
			return err
		}
		if err := w.verifyVisible(n); err != nil {
			return err
		}
	}
	if err := errors.Join(w.verifyTruth(), w.verifyReports()); err != nil {
		return err
	}
	if w.rng.IntN(4) == 0 {
		if err := w.verifyExpiry(); err != nil {
			return err
		}
	}
	if w.rng.IntN(4) == 0 {
		if err := w.verifyDeath(); err != nil {
			return err
		}
	}
	for _, n := range w.nodes {
		if err := w.verifyRestart(n); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the greatest version of each key in any store.
func (w *world) newest() map[engine.Key]*engine.Record {
	out := map[engine.Key]*engine.Record{}
	for _, n := range w.nodes {
		for _, v := range n.store.Versions() {
			if have := out[v.Key]; have == nil || have.Version().Less(v.Version()) {
				out[v.Key] = v
			}
		}
	}
	return out
}

func same(a, b *engine.Record) bool { return bytes.Equal(a.Encoded(), b.Encoded()) }

// verifyVersions checks that the store of a node has the newest version of each key, except those
// that the node lists as refused, and that its engine has the same versions.
func (w *world) verifyVersions(n *member) error {
	got := n.store.Versions()
	refusals, _ := n.source.node.Refusals()
	for k, v := range w.newest() {
		if have := n.store.Version(resource.Key(k)); have != nil && same(have, v) {
			continue
		}
		if !slices.ContainsFunc(refusals, func(r engine.Refusal) bool { return r.Key == k && r.Version == v.ID() }) {
			return fmt.Errorf("the store of node %d has %s, but not %s, and lists the refusals %+v", n.i, list(got), idOf(v),
				refusals)
		}
		w.counts["refusal"]++
	}
	writers := map[engine.Writer]int{}
	for _, v := range got {
		if writers[v.Writer]++; v.Deleted {
			writers[v.Writer]--
		}
	}
	for of, k := range writers {
		if limit := w.limits.WriterRecords; w.limited && k > limit+limit/4 {
			return fmt.Errorf("node %d has %d records of %x, the limit is %d", n.i, k, of, limit)
		}
	}
	return w.verifyEngine(n)
}

// verifyEngine compares the versions in the engine of a node with those in its store.
func (w *world) verifyEngine(n *member) error {
	got := n.store.Versions()
	live, tombs := 0, 0
	for _, v := range got {
		if r := n.source.node.Record(v.Key); r == nil || !same(r, v) {
			return fmt.Errorf("node %d has %s in its store and %v in its engine", n.i, v.ID(), r)
		}
		if v.Deleted {
			tombs++
		} else {
			live++
		}
	}
	if len(n.source.node.Records()) != live || n.source.node.Stats().Tombstones != tombs {
		return fmt.Errorf("the engine of node %d has %s and %d tombstones, its store %s; refused %v", n.i,
			list(n.source.node.Records()), n.source.node.Stats().Tombstones, list(got), n.source.node.Stats().Counters)
	}
	return nil
}

func list(versions []*engine.Record) string {
	out := ""
	for _, v := range versions {
		out += fmt.Sprintf(" %s:%s:%v", v.Key.Name, v.ID(), v.Deleted)
	}
	return out
}

// shown is the visible state of a resource.
type shown struct{ kind, text string }

func shownBy(st *store.Store) map[resource.Key]shown {
	out := map[resource.Key]shown{}
	for _, rec := range st.Snapshot().Records() {
		out[rec.Key] = shown{rec.Source.Kind, textOf(rec.Resource)}
	}
	return out
}

// verifyVisible compares the visible resources of a node with its files, its dataplanes, the
// versions of the pool, and the dataplanes of other nodes, in this order.
func (w *world) verifyVisible(n *member) error {
	want, got := map[resource.Key]shown{}, shownBy(n.store)
	for _, rec := range n.store.Snapshot().Records() {
		if rec.Labels != nil {
			return fmt.Errorf("on node %d, %s has the labels %v, although all nodes are alive", n.i, rec.Key, rec.Labels)
		}
	}
	for _, o := range slices.Backward(w.nodes) { // the lowest ID wins
		for k, text := range o.dataplanes {
			want[k] = shown{store.SourcePeer, text}
		}
	}
	for k, text := range n.dataplanes {
		want[k] = shown{store.SourceEnvoy, text}
	}
	for _, v := range n.store.Versions() {
		if v.Deleted {
			continue
		}
		r, err := n.decode(v.Body)
		if err != nil { // a version that this build can decode stays in force
			if k := resource.Key(v.Key); n.files[k] == "" && n.store.Waiting()[k] == "" {
				return fmt.Errorf("node %d cannot decode %s, and does not list it", n.i, idOf(v))
			} else if old, ok := got[k]; ok && (old.kind == store.SourceAPI || old.kind == store.SourceGossip) {
				want[k] = old
			}
			continue
		}
		want[r.Key] = shown{store.SourceGossip, textOf(r)}
		if [8]byte(v.Writer) == [8]byte(n.id[:8]) {
			want[r.Key] = shown{store.SourceAPI, textOf(r)}
		}
	}
	for k, text := range n.files {
		if old := want[k]; old.kind == store.SourceAPI && got[k] == old {
			continue // a file does not replace what operators wrote on this node
		}
		want[k] = shown{store.SourceFile, text}
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("node %d shows %.60v, want %.60v", n.i, got, want)
	}
	return nil
}

// verifyTruth checks that each acknowledged change is in force, known to the one in force, or
// listed as a conflict on a node.
func (w *world) verifyTruth() error {
	seen, content := map[*change]bool{}, map[string]bool{}
	contentOf := func(r *engine.Record) string { return fmt.Sprint(r.Key, r.Deleted, string(r.Body)) }
	see := func(c *change) {
		for ; c != nil && !seen[c]; c = c.parent {
			seen[c] = true
			content[contentOf(c.record)] = true
		}
	}
	for _, n := range w.nodes {
		for _, v := range n.store.Versions() {
			see(w.truth.byID[idOf(v)])
		}
		for _, c := range n.source.node.Conflicts() {
			see(w.truth.byID[idOf(c.Record)])
		}
	}
	// A change with the same content as one of these is not lost, and its ancestors were overwritten
	// with knowledge of them.
	for before := -1; before != len(seen); {
		before = len(seen)
		for _, c := range w.truth.all {
			if content[contentOf(c.record)] {
				see(c)
			}
		}
	}
	newest := w.newest()
	for _, c := range w.truth.all {
		if c.fragile {
			continue
		}
		head := newest[c.record.Key]
		if head == nil || head.Version().Less(c.record.Version()) {
			return fmt.Errorf("an acknowledged write is lost: %s on node %d; in force is %v", idOf(c.record), c.node, head)
		}
		if !w.truth.dropped && !seen[c] {
			return fmt.Errorf("an acknowledged write was lost silently: %s on node %d", idOf(c.record), c.node)
		}
	}
	return nil
}

// verifyReports checks that each node knows which other nodes have different versions.
func (w *world) verifyReports() error {
	for _, n := range w.nodes {
		for _, o := range w.nodes {
			equal := slices.EqualFunc(n.store.Versions(), o.store.Versions(), same)
			if p := n.source.node.Peer(o.name); n != o && equal != p.Differs.IsZero() {
				return fmt.Errorf("the versions of nodes %d and %d are equal: %v; the first reports %+v", n.i, o.i, equal, p)
			}
		}
	}
	return nil
}

// verifyFile compares the file of a node after a write with what the node shows.
func (w *world) verifyFile(n *member) {
	path := n.path + ".copy"
	w.check(os.WriteFile(path, w.load(n), 0o600))
	defer func() { w.check(os.Remove(path)) }()
	st, err := store.Open(w.storeOptions(n, path))
	w.check(err)
	defer func() { _ = st.Close() }()
	got, want := shownBy(st), shownBy(n.store)
	for _, m := range []map[resource.Key]shown{got, want} {
		maps.DeleteFunc(m, func(_ resource.Key, s shown) bool { return s.kind == store.SourcePeer })
	}
	if a, b := list(st.Versions()), list(n.store.Versions()); a != b {
		w.t.Errorf("the file of node %d has %s, its store %s", n.i, a, b)
	} else if !maps.Equal(got, want) {
		w.t.Errorf("the file of node %d has %.60v, its store %.60v", n.i, got, want)
	}
}

// verifyExpiry checks that tombstones disappear from all stores.
func (w *world) verifyExpiry() error {
	w.skip(w.limits.Horizon + time.Hour)
	w.run(time.Minute)
	for _, n := range w.nodes {
		for _, v := range n.store.Versions() {
			if v.Deleted {
				return fmt.Errorf("the store of node %d has the expired tombstone %s", n.i, idOf(v))
			}
		}
		if err := errors.Join(w.verifyVersions(n), w.verifyVisible(n)); err != nil {
			return fmt.Errorf("after the horizon: %w", err)
		}
	}
	return nil
}

// verifyDeath kills a node, and starts it again when others have noticed that.
func (w *world) verifyDeath() error {
	dead := w.nodes[w.rng.IntN(len(w.nodes))]
	w.kill(dead, w.load(dead))
	w.run(45 * time.Second)
	for _, n := range w.nodes {
		if n == dead {
			continue
		}
		for _, rec := range n.store.Snapshot().Records() {
			mark, own := rec.Labels[resource.LabelLiveness], dead.dataplanes[rec.Key] != ""
			claimed := slices.ContainsFunc(w.nodes, func(o *member) bool { return o != dead && o.dataplanes[rec.Key] != "" })
			if !claimed && own != (mark == resource.LivenessDead) || !own && mark != "" {
				return fmt.Errorf("node %d is dead, and on node %d, %s is marked %q", dead.i, n.i, rec.Key, mark)
			}
		}
	}
	w.start(dead)
	w.run(30 * time.Second)
	for _, n := range w.nodes {
		if err := errors.Join(w.verifyVersions(n), w.verifyVisible(n)); err != nil {
			return fmt.Errorf("after the return of node %d: %w", dead.i, err)
		}
	}
	return nil
}

// verifyRestart kills a node after its last write to the disk, and compares its state after a start
// with the state before.
func (w *world) verifyRestart(n *member) error {
	w.check(n.store.Flush())
	w.check(n.source.node.Save())
	shown, versions, conflicts, waiting := shownBy(n.store), list(n.store.Versions()), conflictsOf(n), n.store.Waiting()
	w.kill(n, w.load(n))
	w.open(n)
	n.up = true
	switch {
	case list(n.store.Versions()) != versions:
		return fmt.Errorf("after a restart the store of node %d has %s, want %s", n.i, list(n.store.Versions()), versions)
	case !maps.Equal(shownBy(n.store), shown):
		return fmt.Errorf("after a restart node %d shows %.60v, want %.60v", n.i, shownBy(n.store), shown)
	case !maps.Equal(n.store.Waiting(), waiting):
		return fmt.Errorf("after a restart, on node %d wait %v, want %v", n.i, n.store.Waiting(), waiting)
	case !slices.Equal(conflictsOf(n), conflicts):
		return fmt.Errorf("after a restart node %d lists the conflicts %v, want %v", n.i, conflictsOf(n), conflicts)
	}
	return w.verifyEngine(n)
}

func conflictsOf(n *member) (out []string) {
	for _, c := range n.source.node.Conflicts() {
		out = append(out, idOf(c.Record))
	}
	slices.Sort(out)
	return out
}

// clean closes all stores and removes their files.
func (w *world) clean() {
	for _, n := range w.nodes {
		n.up, n.committed = false, nil
		_ = n.store.Close()
		if err := os.Remove(n.path); !errors.Is(err, fs.ErrNotExist) {
			w.check(err)
		}
	}
}
