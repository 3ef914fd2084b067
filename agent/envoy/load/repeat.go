package load

import (
	"slices"

	"google.golang.org/protobuf/types/known/anypb"
)

// Filter chains that differ in what they match alone have the same filters, byte by byte: those for a port or a prefix
// beside those for any, those of the listener for IPv4 beside that for IPv6. Others differ in names alone. A filter is
// decoded and walked once in a check; where one of its shape, or without a shape the same one, comes again, what was
// noted of it is noted again with other pointers and names.

const (
	maxRepeats     = 1 << 12 // filters of one check
	maxRepeatBytes = 8 << 20 // of all of them
)

// repeats are the filters of a check.
type repeats struct {
	known        map[repeatKey]map[string]*noted // by shape or by bytes
	count, bytes int
	shaper       shaper
}

// repeatKey is what rules about a filter ask beside what it holds: all filters stand in a filter chain of a listener.
type repeatKey struct {
	url    string
	udp    bool
	shaped bool
}

// noted is what was noted of a filter; its pointers begin at the filter.
type noted struct {
	refs    []ref
	origins []int // of refs, as in a template
	regexes []sized
	files   []sink
	// again is true for a filter with findings or other things: it is walked each time.
	again bool
}

// repeated is unpack for a network filter.
func (w *walker) repeated(a *anypb.Any, f *planField) {
	repeats := &w.cache.repeats
	key := repeatKey{url: a.GetTypeUrl(), udp: w.out.udp()}
	id := a.GetValue()
	s := &repeats.shaper
	if key.shaped = s.takeInner(w.cache.filters[key.url], a.GetValue()); key.shaped {
		id = s.key
	}
	known := repeats.known[key][string(id)]
	if known != nil && !known.again {
		w.note(known, s)
		return
	}
	refs, regexes, files := len(w.out.refs), len(w.out.regexes), len(w.out.files)
	rest := w.weight() - refs - regexes - files
	w.unpack(a, f)
	if known != nil || repeats.count == maxRepeats || repeats.bytes+len(id) > maxRepeatBytes {
		return
	}
	at := len(w.pointer(""))
	n := &noted{refs: slices.Clone(w.out.refs[refs:]), regexes: slices.Clone(w.out.regexes[regexes:]), files: slices.Clone(w.out.files[files:])}
	n.again = w.weight()-len(w.out.refs)-len(w.out.regexes)-len(w.out.files) != rest
	if key.shaped {
		var sure bool
		n.origins, sure = s.origins(n.refs, false)
		n.again = n.again || !sure
	}
	for i := range n.refs {
		n.refs[i].pointer = n.refs[i].pointer[at:]
	}
	for i := range n.regexes {
		n.regexes[i].pointer = n.regexes[i].pointer[at:]
	}
	for i := range n.files {
		n.files[i].pointer = n.files[i].pointer[at:]
	}
	if repeats.known == nil {
		repeats.known = map[repeatKey]map[string]*noted{}
	}
	if repeats.known[key] == nil {
		repeats.known[key] = map[string]*noted{}
	}
	repeats.known[key][string(id)] = n
	repeats.count++
	repeats.bytes += len(id)
}

// note notes a filter once more. The names of one with a shape are those of s.
func (w *walker) note(n *noted, s *shaper) {
	at := w.pointer("")
	for i, r := range n.refs {
		if n.origins != nil && n.origins[i] >= 0 {
			r.name = s.names[n.origins[i]]
		}
		r.pointer = at + r.pointer
		w.out.refs = append(w.out.refs, r)
	}
	for _, r := range n.regexes {
		r.pointer = at + r.pointer
		w.out.regexes = append(w.out.regexes, r)
	}
	for _, f := range n.files {
		f.pointer = at + f.pointer
		w.out.files = append(w.out.files, f)
	}
}
