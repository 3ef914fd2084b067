package proxypatch

import (
	"iter"
	"slices"
)

// concern says which plans are about a kind of resource, so that a thousand policies about one resource each cost
// a thousand steps and not a million.
type concern struct {
	all   []int            // plans that name no resource, in their order
	named map[string][]int // plans that name one, by its name, in their order
	added map[string]bool  // names of resources that a plan adds
}

func (c *concern) any() bool { return len(c.all) > 0 || len(c.named) > 0 || len(c.added) > 0 }

// note enters a change of a plan. Plans come in their order.
func (e *editor) note(plan int, ch *Change) {
	about, name := &e.about[Listeners], ch.match.listener
	switch ch.target {
	case Clusters:
		about, name = &e.about[Clusters], ch.match.name
	case Listeners:
		name = ch.match.name
	case Resources:
		return
	}
	if added, _, ok := ch.Adds(); ok {
		if about.added == nil {
			about.added = map[string]bool{}
		}
		about.added[added] = true
		return
	}
	if name == nil {
		about.all = appendOnce(about.all, plan)
		return
	}
	if about.named == nil {
		about.named = map[string][]int{}
	}
	about.named[*name] = appendOnce(about.named[*name], plan)
}

func appendOnce(list []int, n int) []int {
	if len(list) > 0 && list[len(list)-1] == n {
		return list
	}
	return append(list, n)
}

// of returns the plans that may be about a resource of a name, in their order.
func (c *concern) of(name string) []int {
	named := c.named[name]
	switch {
	case len(named) == 0:
		return c.all
	case len(c.all) == 0:
		return named
	}
	out := slices.Concat(c.all, named)
	slices.Sort(out)
	return slices.Compact(out)
}

// from returns each plan, by its index, from a step on that may be about a resource of a name, with the changes that are left of it.
func (e *editor) from(s step, t Target, name string) iter.Seq2[int, []*Change] {
	return func(yield func(int, []*Change) bool) {
		for _, i := range e.about[t].of(name) {
			if i < s.plan {
				continue
			}
			changes := e.plans[i].Changes
			if i == s.plan {
				changes = changes[s.change:]
			}
			if !yield(i, changes) {
				return
			}
		}
	}
}
