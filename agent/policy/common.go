package policy

import "github.com/nearside-mesh/nearside/agent/resource"

// common is the items about everything, which stand between those about one destination in the rule of each. What they
// merge to is made once for every place at which others can come between.
type common struct {
	head []resource.Conf // head[i]: the first i of them
	tail []resource.Conf // tail[i]: those from i on
}

// newCommon numbers the items.
func newCommon(items []item) *common {
	n := len(items)
	c := &common{head: make([]resource.Conf, n+1), tail: make([]resource.Conf, n+1)}
	for i := range items {
		items[i].common = i + 1
		c.head[i+1] = together(c.head[i], items[i].conf)
	}
	for i := n - 1; i >= 0; i-- {
		c.tail[i] = together(items[i].conf, c.tail[i+1])
	}
	return c
}

func together(a, b resource.Conf) resource.Conf {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return resource.Merge(a, b)
}

// merge makes one rule of items, among which are all the common ones in their order.
func (c *common) merge(s Subset, items []item) *Rule {
	n := len(c.head) - 1
	from := 0
	for from < len(items) && items[from].common == from+1 {
		from++
	}
	to := len(items)
	for to > from && items[to-1].common != 0 && items[to-1].common == n-(len(items)-to) {
		to--
	}
	confs := make([]resource.Conf, 0, to-from+2)
	if from > 0 {
		confs = append(confs, c.head[from])
	}
	for _, it := range items[from:to] {
		confs = append(confs, it.conf)
	}
	if to < len(items) {
		confs = append(confs, c.tail[n-(len(items)-to)])
	}
	return &Rule{Subset: s, Conf: resource.Merge(confs...), Origins: originsOf(items)}
}
