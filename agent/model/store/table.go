package store

import (
	"iter"
	"maps"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// shards is the number of shards of a table. A change copies one of them.
const shards = 64

// table maps keys to records. It is copied on write, shard by shard, and immutable once published.
type table struct {
	parts [shards]map[resource.Key]*Record
	own   [shards]bool   // the shard is not shared with another table
	gen   [shards]uint64 // counts the changes of a shard, from table to table
	count int
}

// shard returns the shard of a key, by FNV-1a over the name, which varies most between keys.
func shard(k resource.Key) int {
	h := uint32(2166136261)
	for i := range len(k.Name) {
		h = (h ^ uint32(k.Name[i])) * 16777619
	}
	return int((h ^ h>>16) % shards)
}

// copy returns a table for changes. It shares its shards until they are modified.
func (t *table) copy() *table { return &table{parts: t.parts, gen: t.gen, count: t.count} }

func (t *table) get(k resource.Key) *Record { return t.parts[shard(k)][k] }

// all yields the records in no fixed order.
func (t *table) all() iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, p := range t.parts {
			for _, r := range p {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// put sets the record of a key; nil removes it.
func (t *table) put(k resource.Key, r *Record) {
	i := shard(k)
	if !t.own[i] {
		t.own[i] = true
		t.gen[i]++
		if t.parts[i] = maps.Clone(t.parts[i]); t.parts[i] == nil {
			t.parts[i] = map[resource.Key]*Record{}
		}
	}
	t.count -= len(t.parts[i])
	if r == nil {
		delete(t.parts[i], k)
	} else {
		t.parts[i][k] = r
	}
	t.count += len(t.parts[i])
}
