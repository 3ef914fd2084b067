package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrInUse means that a record cannot be deleted, because other entries belong to it.
var ErrInUse = errors.New("other resources belong to it")

// containers holds the deletions of records to which other entries belong; see Config.Container.
// They take effect when these entries are gone.
type containers struct {
	contents map[string]int // number of entries, by the name of their container
	touched  map[string]bool
	held     map[Slot]*Record
}

// contain counts an entry that belongs to a container.
func (e *Engine) contain(k Key, n int) {
	if e.cfg.Container == "" {
		return
	}
	if k.Kind == e.cfg.Container {
		e.holds.touched[k.Name] = true
	}
	if k.Mesh == "" || e.cfg.Known != nil && !e.cfg.Known(k.Kind) {
		return
	}
	e.holds.touched[k.Mesh] = true
	if e.holds.contents[k.Mesh] += n; e.holds.contents[k.Mesh] == 0 {
		delete(e.holds.contents, k.Mesh)
	}
}

// mustHold reports whether the deletion of a record has to wait.
func (e *Engine) mustHold(r *Record) bool {
	return r.Deleted && r.Key.Kind == e.cfg.Container && e.holds.contents[r.Key.Name] > 0
}

// hold stores a deletion that has to wait, and forwards it.
func (e *Engine) hold(r *Record, from string) {
	slot := r.Key.Slot()
	if old := e.holds.held[slot]; old != nil && !old.Version().Less(r.Version()) {
		return
	}
	e.holds.held[slot] = r
	e.write(bucketHeld, string(slot[:]), r.Encoded())
	e.news = append(e.news, news{slot: slot, from: from, parked: true})
	e.count("held")
	e.note("held", fmt.Sprintf("%s was deleted and stays: other resources belong to it; delete them first", r.Key))
}

func (e *Engine) dropHeld(slot Slot) {
	delete(e.holds.held, slot)
	e.write(bucketHeld, string(slot[:]), nil)
}

// aside returns a version that is not in force yet, or nil.
func (e *Engine) aside(slot Slot) *Record {
	if p := e.parked[slot]; p != nil {
		return p.record
	}
	return e.holds.held[slot]
}

// settleHolds applies held deletions whose entries are gone. It holds deletions in force to which
// entries belong now: peers have the container.
func (e *Engine) settleHolds() {
	for _, name := range slices.Sorted(maps.Keys(e.holds.touched)) {
		delete(e.holds.touched, name)
		slot := Key{Kind: e.cfg.Container, Name: name}.Slot()
		en, held := e.entries[slot], e.holds.held[slot]
		switch {
		case en != nil && e.mustHold(en.record):
			r := en.record
			e.dropRecord(en)
			e.hold(r, "")
		case held == nil:
		case en != nil && !en.head.Version.Less(held.Version()):
			e.dropHeld(slot)
		case e.holds.contents[name] == 0:
			e.dropHeld(slot)
			if e.admit(held, "", e.agreed) {
				e.news = append(e.news, news{slot: slot})
			}
		}
	}
	clear(e.holds.touched)
}

// checkHolds returns an error if changes delete a record to which other entries belong afterwards.
func (e *Engine) checkHolds(records []*Record) error {
	changed := map[Key]*Record{}
	for _, r := range records {
		changed[r.Key] = r
	}
	for _, r := range records {
		if changed[r.Key] != r || !e.mustHold(r) {
			continue
		}
		var left []string
		for _, k := range e.belonging(r.Key.Name) {
			if x := changed[k]; x == nil || !x.Deleted {
				left = append(left, k.String())
			}
		}
		if n := len(left); n > 0 {
			return fmt.Errorf("%w: %s has %d, such as %s; delete them first", ErrInUse, r.Key, n,
				strings.Join(left[:min(n, 5)], ", "))
		}
	}
	return nil
}

// belonging returns the keys of the entries that belong to a container: first records, by key.
func (e *Engine) belonging(name string) (out []Key) {
	add := func(k Key) {
		if k.Mesh == name && (e.cfg.Known == nil || e.cfg.Known(k.Kind)) {
			out = append(out, k)
		}
	}
	for _, r := range e.Records() {
		add(r.Key)
	}
	for _, m := range append(e.owners(false), e.owners(true)...) {
		for _, x := range e.Items(m) {
			add(x.Key)
		}
	}
	return out
}

// Held returns deletions that wait until no entries belong to their records, sorted by key.
func (e *Engine) Held() []*Record {
	return slices.SortedFunc(maps.Values(e.holds.held), func(a, b *Record) int { return a.Key.Compare(b.Key) })
}
