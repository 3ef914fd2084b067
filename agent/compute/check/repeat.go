package check

import (
	"slices"

	"google.golang.org/protobuf/types/known/anypb"
)

// Filter chains that differ in what they match alone have the same filters, byte by byte: those for
// a port or a prefix beside those for any, those of the listener for IPv4 beside that for IPv6.
// Others differ in names alone. A filter is decoded and walked once in a check; where one of its
// shape, or without a shape the same one, comes again, what was noted of it is noted again with
// other pointers and names.

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

// repeatKey is what rules about a filter ask beside what it holds: all filters stand in a filter
// chain of a listener.
type repeatKey struct {
	url    string
	udp    bool
	shaped bool
}

// noted is what was noted of a filter; its pointers begin at the filter.
type noted struct {
	checked
	origins []int // of refs, as in a template
	// again is true for a filter with findings or other things: it is walked each time.
	again bool
}

// repeated is unpack for a network filter.
func (w *walker) repeated(a *anypb.Any, in slot) {
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
	used := w.out.uses
	w.out.uses = uses{}
	w.unpack(a, in)
	has := w.out.uses
	w.out.uses.addAll(&used)
	if known != nil || repeats.count == maxRepeats || repeats.bytes+len(id) > maxRepeatBytes {
		return
	}
	at := len(w.pointer(""))
	n := &noted{checked: checked{uses: has, refs: slices.Clone(w.out.refs[refs:]),
		regexes: slices.Clone(w.out.regexes[regexes:]), files: slices.Clone(w.out.files[files:])}}
	n.again = w.weight()-len(w.out.refs)-len(w.out.regexes)-len(w.out.files) != rest
	if key.shaped {
		var sure bool
		n.origins, sure = s.origins(n.refs, false)
		n.again = n.again || !sure
	}
	n.pointers(func(p string) string { return p[at:] })
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

// pointers changes the pointers of what is noted.
func (c *checked) pointers(change func(string) string) {
	for i := range c.refs {
		c.refs[i].pointer = change(c.refs[i].pointer)
	}
	for i := range c.regexes {
		c.regexes[i].pointer = change(c.regexes[i].pointer)
	}
	for i := range c.files {
		c.files[i].pointer = change(c.files[i].pointer)
	}
}

// note notes a filter once more. The names of one with a shape are those of s.
func (w *walker) note(n *noted, s *shaper) {
	refs, regexes, files := len(w.out.refs), len(w.out.regexes), len(w.out.files)
	w.out.refs, w.out.regexes, w.out.files = append(w.out.refs, n.refs...), append(w.out.regexes, n.regexes...),
		append(w.out.files, n.files...)
	w.out.uses.addAll(&n.uses)
	added := checked{refs: w.out.refs[refs:], regexes: w.out.regexes[regexes:], files: w.out.files[files:]}
	at := w.pointer("")
	added.pointers(func(p string) string { return at + p })
	s.rename(added.refs, n.origins)
}
