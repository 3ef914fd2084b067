package strict

import (
	"slices"
	"strings"
)

// Check walks the whole tree once and reports faults that do not depend on types: duplicate keys
// (the first one is used), too deep nesting, and NUL characters.
func (d *Decoder) Check(n *Node) { d.check(n, 1) }

func (d *Decoder) check(n *Node, depth int) {
	if depth > d.Depth {
		d.Faultf(n.Line, "nested too deeply (at most %d levels)", d.Depth)
		n.Kind, n.Items, n.Pairs = Null, nil, nil
		return
	}
	switch n.Kind {
	case String:
		if strings.IndexByte(n.Text, 0) >= 0 {
			what := n.Show()
			if d.inSecret() {
				what = "the text"
			}
			d.Faultf(n.Line, "%s contains a NUL character; remove it", what)
		}
	case List:
		for i, it := range n.Items {
			d.EnterItem(i)
			d.check(it, depth+1)
			d.Leave()
		}
	case Mapping:
		d.duplicates(n)
		for i := range n.Pairs {
			p := &n.Pairs[i]
			if strings.IndexByte(p.Key, 0) >= 0 {
				d.Faultf(p.Line, "the key %s contains a NUL character; remove it", Quote(p.Key))
			}
			d.enterUser(p.Key)
			d.check(p.Value, depth+1)
			d.Leave()
		}
	}
}

func (d *Decoder) duplicates(n *Node) {
	var seen map[string]int
	if len(n.Pairs) > 16 {
		seen = make(map[string]int, len(n.Pairs))
	}
	unique := n.Pairs[:0:len(n.Pairs)]
	for i := range n.Pairs {
		p := n.Pairs[i]
		first := 0
		if seen != nil {
			first = seen[p.Key]
			if first == 0 {
				seen[p.Key] = p.Line
			}
		} else if j := slices.IndexFunc(unique, func(q Pair) bool { return q.Key == p.Key }); j >= 0 {
			first = unique[j].Line
		}
		if first != 0 {
			d.enterUser(p.Key)
			d.Faultf(p.Line, "duplicate key, first defined in line %d; remove one", first)
			d.Leave()
			continue
		}
		unique = append(unique, p)
	}
	n.Pairs = unique
}
