package store

import (
	"iter"
	"maps"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// shards is the number of parts of a table: a change copies one of them.
const shards = 64

// table maps keys to records. It is copied on write, shard by shard; once published it is not
// changed any more.
type table struct {
	parts [shards]map[resource.Key]*Record
	own   [shards]bool // the part belongs to this table alone
	count int
}

// shard picks a part by FNV-1a over the name, which is what differs most between keys.
func shard(k resource.Key) int {
	h := uint32(2166136261)
	for i := range len(k.Name) {
		h = (h ^ uint32(k.Name[i])) * 16777619
	}
	return int((h ^ h>>16) % shards)
}

// copy returns a table that can be changed. It shares its parts until they are.
func (t *table) copy() *table { return &table{parts: t.parts, count: t.count} }

func (t *table) get(k resource.Key) *Record { return t.parts[shard(k)][k] }

// all yields the records in no order.
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
