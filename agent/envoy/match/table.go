package match

// table is a map that is small as a rule: up to a few entries it is a list. The zero value is empty.
type table[V any] struct {
	items []item[V]
	index map[string]int // of the items, when they are many
}

type item[V any] struct {
	key   string
	value V
}

// manyItems is the number from which on a table has an index.
const manyItems = 8

// get returns the value of a key, nil for none. The pointer is good until the next call of at.
func (t *table[V]) get(key string) *V {
	if t.index != nil {
		if i, ok := t.index[key]; ok {
			return &t.items[i].value
		}
		return nil
	}
	for i := range t.items {
		if t.items[i].key == key {
			return &t.items[i].value
		}
	}
	return nil
}

// at is get, and adds the key where it is new.
func (t *table[V]) at(key string) *V {
	if v := t.get(key); v != nil {
		return v
	}
	t.items = append(t.items, item[V]{key: key})
	switch n := len(t.items); {
	case t.index != nil:
		t.index[key] = n - 1
	case n >= manyItems:
		t.index = make(map[string]int, 2*n)
		for i := range t.items {
			t.index[t.items[i].key] = i
		}
	}
	return &t.items[len(t.items)-1].value
}

// keys lists the keys, in the order in which they came.
func (t *table[V]) keys() []string {
	out := make([]string, len(t.items))
	for i := range t.items {
		out[i] = t.items[i].key
	}
	return out
}
