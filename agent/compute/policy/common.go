package policy

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// common holds the items that apply to everything. Rules of one destination interleave them with
// their own items; precomputed prefix and suffix merges avoid merging them again for each rule.
type common struct {
	ranks   []int
	origins []Origin
	confs   []resource.Conf
	head    []resource.Conf // head[i] merges the first i confs
	tail    []resource.Conf // tail[i] merges the confs from i on
}

// newCommon returns the merges of items, which must be in merge order.
func newCommon(items []item) *common {
	n := len(items)
	c := &common{head: make([]resource.Conf, n+1), tail: make([]resource.Conf, n+1)}
	for i, it := range items {
		c.ranks, c.origins, c.confs = append(c.ranks, it.rank), append(c.origins, it.origin), append(c.confs, it.conf)
		c.head[i+1] = mergeTwo(c.head[i], it.conf)
	}
	for i := n - 1; i >= 0; i-- {
		c.tail[i] = mergeTwo(c.confs[i], c.tail[i+1])
	}
	return c
}

func mergeTwo(a, b resource.Conf) resource.Conf {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return resource.Merge(a, b)
}

// merge returns one rule of the common items and others, which must be in merge order.
func (c *common) merge(s Subset, items []item) *Rule {
	n := len(c.ranks)
	r := &Rule{Subset: s, Origins: make([]Origin, 0, n+len(items))}
	confs := make([]resource.Conf, 0, len(items)+2)
	at := 0 // number of common items merged so far
	for i, it := range items {
		to, _ := slices.BinarySearch(c.ranks, it.rank)
		switch {
		case to == at:
		case i == 0:
			confs = append(confs, c.head[to])
		default:
			confs = append(confs, c.confs[at:to]...)
		}
		r.Origins = append(append(r.Origins, c.origins[at:to]...), it.origin)
		confs = append(confs, it.conf)
		at = to
	}
	if at < n {
		confs = append(confs, c.tail[at])
	}
	r.Origins = append(r.Origins, c.origins[at:]...)
	r.Conf = resource.Merge(confs...)
	return r
}
