package draft

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Retained is what listeners that are gone still need, as it was found last: most changes leave it
// as it is. The zero value knows nothing.
type Retained struct {
	gone         []*Resource
	current, had Lists
	kept, merged Lists // what is needed and the config has no longer; the lists with it
}

// Retain returns the lists of a config with what listeners that are gone refer to and the config
// has no longer, taken from the lists that had it. All other lists are shared, and those that come
// out as they did last are the same.
func (t *Retained) Retain(current *Lists, gone []*Resource, had *Lists) Lists {
	out, differs := *current, [NumTypes]bool{RankListener: !slices.Equal(t.gone, gone)}
	t.gone = gone
	referrers := Lists{RankListener: gone}
	for _, rank := range referrersFirst {
		if rank == RankListener {
			continue
		}
		moved := !SameList(current[rank], t.current[rank])
		if moved || !SameList(had[rank], t.had[rank]) ||
			slices.ContainsFunc(Referrers[rank], func(from int) bool { return differs[from] }) {
			kept := mentioned(&referrers, rank, missing(current[rank], had[rank]))
			differs[rank] = !slices.Equal(kept, t.kept[rank])
			t.kept[rank] = kept
		}
		switch {
		case len(t.kept[rank]) == 0:
			t.merged[rank] = current[rank]
		case moved || differs[rank]:
			t.merged[rank] = Merge(current[rank], t.kept[rank], nil)
		}
		referrers[rank], out[rank] = t.kept[rank], t.merged[rank]
	}
	t.current, t.had = *current, *had
	return out
}

// mentions says of each name whether one of some bodies holds it.
func mentions(bodies [][]byte, names []string) []bool {
	f, found, left := newFinder(names), make([]bool, len(names)), len(names)
	for _, body := range bodies {
		if left == 0 {
			break
		}
		f.find(body, func(i int) bool {
			if !found[i] {
				found[i] = true
				left--
			}
			return left > 0
		})
	}
	return found
}

// Mentioning returns those resources of a list that may refer to one of some names.
func Mentioning(list []*Resource, names []string) (out []*Resource) {
	f := newFinder(names)
	for _, r := range list {
		is := false
		f.find(r.Body(), func(int) bool { is = true; return false })
		if is {
			out = append(out, r)
		}
	}
	return out
}

const (
	window = 8 // how many bytes of a name are looked up at once
	few    = 4 // names for which it is quicker to look for one after the other
)

// finder looks for many names at once. A body is read once, however many they are: at each place
// the names that begin with the bytes there are compared, by their lengths.
type finder struct {
	names   []string
	width   int // bytes that are looked up; 0: one name is looked for after the other
	mask    uint64
	filter  [1 << 10]uint64 // of the bytes that a name begins with, by a hash
	lengths map[uint64][]int
	at      map[string]int
}

func newFinder(names []string) *finder {
	f := &finder{names: names}
	if len(names) <= few {
		return f
	}
	f.width = window
	for _, name := range names {
		f.width = min(f.width, len(name))
	}
	if f.width == 0 { // an empty one stands everywhere
		return f
	}
	f.mask = ^uint64(0) >> (8 * (window - f.width))
	f.lengths, f.at = map[uint64][]int{}, make(map[string]int, len(names))
	for i, name := range names {
		begin := f.begin([]byte(name))
		word, bit := f.place(begin)
		f.filter[word] |= bit
		if !slices.Contains(f.lengths[begin], len(name)) {
			f.lengths[begin] = append(f.lengths[begin], len(name))
		}
		f.at[name] = i
	}
	return f
}

// begin is the bytes that a body begins with, as many as are looked up.
func (f *finder) begin(body []byte) uint64 {
	if len(body) >= window {
		return binary.LittleEndian.Uint64(body) & f.mask
	}
	var b [window]byte
	copy(b[:], body)
	return binary.LittleEndian.Uint64(b[:]) & f.mask
}

func (*finder) place(begin uint64) (word, bit uint64) {
	h := begin * 0x9e3779b97f4a7c15 >> 48
	return h >> 6, 1 << (h & 63)
}

// find calls found with the index of each name that a body holds, until it returns false; with some
// more than once.
func (f *finder) find(body []byte, found func(i int) bool) {
	if f.width == 0 {
		for i, name := range f.names {
			if bytes.Contains(body, []byte(name)) && !found(i) {
				return
			}
		}
		return
	}
	for i := 0; i+f.width <= len(body); i++ {
		begin := f.begin(body[i:])
		if word, bit := f.place(begin); f.filter[word]&bit == 0 {
			continue
		}
		for _, n := range f.lengths[begin] {
			if i+n > len(body) {
				continue
			}
			if k, ok := f.at[string(body[i:i+n])]; ok && !found(k) {
				return
			}
		}
	}
}
