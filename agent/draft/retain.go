package draft

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Retained is what listeners that are gone still need, as it was found last: most changes leave it as it is. The zero value knows nothing.
type Retained struct {
	gone         []*Resource
	current, had Lists
	kept, merged Lists // what is needed and the config has no longer; the lists with it
}

// Retain returns the lists of a config with what listeners that are gone refer to and the config has no longer, taken from the lists that had
// it. All other lists are shared, and those that come out as they did last are the same.
func (t *Retained) Retain(current *Lists, gone []*Resource, had *Lists) Lists {
	out, differs := *current, [NumTypes]bool{RankListener: !slices.Equal(t.gone, gone)}
	t.gone = gone
	referrers := Lists{RankListener: gone}
	for _, rank := range referrersFirst {
		if rank == RankListener {
			continue
		}
		moved := !SameList(current[rank], t.current[rank])
		if moved || !SameList(had[rank], t.had[rank]) || slices.ContainsFunc(Referrers[rank], func(from int) bool { return differs[from] }) {
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

// window is how many bytes of a name are looked up at once.
const window = 8

// mentions says of each name whether one of some bodies holds it. Each body is read once, however many names there are: at each place the
// names that begin with the bytes there are compared, by their lengths.
func mentions(bodies [][]byte, names []string) []bool {
	found := make([]bool, len(names))
	const few = 4
	if len(names) <= few {
		for i, name := range names {
			found[i] = mention(bodies, name)
		}
		return found
	}
	width := window
	for _, name := range names {
		width = min(width, len(name))
	}
	if width == 0 { // an empty one stands everywhere
		for i, name := range names {
			found[i] = mention(bodies, name)
		}
		return found
	}
	mask := ^uint64(0) >> (8 * (window - width))
	var filter [1 << 10]uint64 // of the bytes that a name begins with, by a hash
	place := func(begin uint64) (word uint64, bit uint64) {
		h := begin * 0x9e3779b97f4a7c15 >> 48
		return h >> 6, 1 << (h & 63)
	}
	lengths, at := map[uint64][]int{}, make(map[string]int, len(names))
	for i, name := range names {
		var b [window]byte
		copy(b[:], name[:width])
		begin := binary.LittleEndian.Uint64(b[:])
		word, bit := place(begin)
		filter[word] |= bit
		if !slices.Contains(lengths[begin], len(name)) {
			lengths[begin] = append(lengths[begin], len(name))
		}
		at[name] = i
	}
	left := len(at)
	var tail [2 * window]byte
	for _, body := range bodies {
		for i := 0; i+width <= len(body); i++ {
			var begin uint64
			if i+window <= len(body) {
				begin = binary.LittleEndian.Uint64(body[i:])
			} else {
				clear(tail[copy(tail[:], body[i:]):])
				begin = binary.LittleEndian.Uint64(tail[:])
			}
			begin &= mask
			if word, bit := place(begin); filter[word]&bit == 0 {
				continue
			}
			for _, n := range lengths[begin] {
				if i+n > len(body) {
					continue
				}
				if k, ok := at[string(body[i:i+n])]; ok && !found[k] {
					found[k] = true
					if left--; left == 0 {
						return found
					}
				}
			}
		}
	}
	return found
}

func mention(bodies [][]byte, name string) bool {
	return slices.ContainsFunc(bodies, func(b []byte) bool { return bytes.Contains(b, []byte(name)) })
}
