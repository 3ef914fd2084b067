package check

import (
	"slices"

	"google.golang.org/protobuf/types/known/anypb"
)

// Many filter chains have the same filters byte for byte: those for a port or prefix and those for
// any, or those of the IPv4 and the IPv6 listener. Others differ only in names. A check decodes and
// walks a filter once. For an identical filter, or one with the same shape, it copies the results
// and replaces pointers and names.

const (
	maxRepeats     = 1 << 12 // filters per check
	maxRepeatBytes = 8 << 20 // their total size
)

// repeats caches the filters of a check.
type repeats struct {
	known        map[repeatKey]map[string]*noted // by shape or by bytes
	count, bytes int
	shaper       shaper
}

// repeatKey holds the rules' inputs besides the content of a filter. All filters are in a filter
// chain of a listener.
type repeatKey struct {
	url    string
	udp    bool
	shaped bool
}

// noted holds the results of a filter. Its pointers are relative to the filter.
type noted struct {
	checked
	origins []int // of refs, as in a template
	// rewalk is set if the filter must be walked each time, for example because it has findings.
	rewalk bool
}

// repeated unpacks a network filter or reuses the results of an equal one.
func (w *walker) repeated(a *anypb.Any, in slot) {
	repeats := &w.cache.repeats
	key := repeatKey{url: a.GetTypeUrl(), udp: w.out.udp()}
	id := a.GetValue()
	s := &repeats.shaper
	if key.shaped = s.takeInner(w.cache.filters[key.url], a.GetValue()); key.shaped {
		id = s.key
	}
	known := repeats.known[key][string(id)]
	if known != nil && !known.rewalk {
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
	n.rewalk = w.weight()-len(w.out.refs)-len(w.out.regexes)-len(w.out.files) != rest
	if key.shaped {
		var sure bool
		n.origins, sure = s.origins(n.refs, false)
		n.rewalk = n.rewalk || !sure
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

// pointers changes the pointers of all results.
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

// note adds the results of a cached filter. The names of a filter with a shape come from s.
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
