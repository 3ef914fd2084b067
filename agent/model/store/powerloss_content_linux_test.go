package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// content is what a store has of operators' resources, and of the state of the pool.
type content struct {
	texts    map[string]string
	history  map[string][]string // texts, and "-" for a deletion
	versions map[string]string   // nil: unknown
	state    map[string]string   // values by bucket and key; nil: unknown
}

var (
	localNames = []string{"a", "b", "c", "d", "big"}
	allNames   = append(slices.Clone(localNames), "r1", "r2") // also written on another node
)

// contentOf returns the content of a store, except the state of the pool.
func contentOf(s *store.Store) content {
	c := content{map[string]string{}, map[string][]string{}, map[string]string{}, map[string]string{}}
	for _, rec := range s.Snapshot().Records() {
		if rec.Source.Operators() {
			c.texts[rec.Name] = text(rec.Resource)
		}
	}
	for _, name := range allNames {
		for _, v := range s.History(key(name)) {
			if v.Deleted {
				c.history[name] = append(c.history[name], "-")
			} else {
				c.history[name] = append(c.history[name], text(v.Resource))
			}
		}
	}
	for _, v := range s.Versions() {
		c.versions[v.Key.Name] = v.ID()
	}
	return c
}

// add adds state of the pool to a content.
func (c content) add(ops []engine.Op) content {
	c.state = maps.Clone(c.state)
	if c.state == nil {
		c.state = map[string]string{}
	}
	for _, op := range ops {
		c.state[op.Bucket+" "+op.Key] = string(op.Value)
		if op.Value == nil {
			delete(c.state, op.Bucket+" "+op.Key)
		}
	}
	return c
}

func (c content) equal(other content) bool {
	return maps.Equal(c.texts, other.texts) && maps.EqualFunc(c.history, other.history, slices.Equal) &&
		(c.versions == nil || other.versions == nil || maps.Equal(c.versions, other.versions)) &&
		(c.state == nil || other.state == nil || maps.Equal(c.state, other.state))
}

// after returns the content after a batch.
func (c content) after(ops []store.Op) content {
	c = content{maps.Clone(c.texts), maps.Clone(c.history), nil, c.state}
	for _, op := range ops {
		name, now := op.Delete.Name, "-"
		if delete(c.texts, name); op.Put != nil {
			name, now = op.Put.Name, text(op.Put)
			c.texts[name] = now
		}
		h := append(slices.Clip(c.history[name]), now)
		c.history[name] = h[max(0, len(h)-store.HistoryLimit):]
	}
	return c
}

// String shortens long texts.
func (c content) String() string {
	var out []string
	for _, name := range allNames {
		out = append(out, fmt.Sprintf("%s=%.6q %.6q %s", name, c.texts[name], c.history[name], c.versions[name]))
	}
	return fmt.Sprintf("%s, state %.20q\n", strings.Join(out, ", "), c.state)
}

// disagreement returns a difference between the versions of a store and its visible resources, or
// "".
func disagreement(s *store.Store) string {
	waiting := s.Waiting()
	for _, v := range s.Versions() {
		k := key(v.Key.Name)
		rec, ok := s.Snapshot().Get(k)
		switch {
		case ok && !rec.Source.Operators():
			if _, noted := waiting[k]; noted == v.Deleted {
				return fmt.Sprintf("%s: it is from %s; noted: %t; tombstone: %t", k, rec.Source, noted, v.Deleted)
			}
		case ok == v.Deleted:
			return fmt.Sprintf("%s: visible: %t; tombstone: %t", k, ok, v.Deleted)
		case ok:
			if body, err := encode(rec.Resource); err != nil || string(body) != string(v.Body) {
				return fmt.Sprintf("%s: the version has %s", k, v.Body)
			}
		}
	}
	for _, rec := range s.Snapshot().Records() {
		if rec.Source.Operators() && s.Version(rec.Key) == nil {
			return fmt.Sprintf("%s has no version", rec.Key)
		}
	}
	return ""
}
