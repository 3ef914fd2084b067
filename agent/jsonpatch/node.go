package jsonpatch

import (
	"slices"
)

// node is a value while a patch is applied. It is opened, that is turned into nodes one level deep, only where an
// operation passes: what no operation touches stays the value that it was.
type node struct {
	value  any              // while neither object nor list is set
	object map[string]*node // an opened object
	list   []*node          // an opened list, when isList
	isList bool
}

// kind says what a node is.
type kind uint8

const (
	scalar kind = iota
	object
	list
)

// open opens the node and says what it is.
func (n *node) open() kind {
	switch {
	case n.object != nil:
		return object
	case n.isList:
		return list
	}
	switch v := plain(n.value).(type) {
	case map[string]any:
		n.object = make(map[string]*node, len(v)+1)
		for k, x := range v {
			n.object[k] = &node{value: x}
		}
		n.value = nil
		return object
	case []any:
		n.list = make([]*node, len(v), len(v)+1)
		for i, x := range v {
			n.list[i] = &node{value: x}
		}
		n.value, n.isList = nil, true
		return list
	}
	return scalar
}

// freeze returns the value of the node. The node must not be used afterwards.
func (n *node) freeze() any {
	switch {
	case n.object != nil:
		out := make(map[string]any, len(n.object))
		for k, c := range n.object {
			out[k] = c.freeze()
		}
		return out
	case n.isList:
		out := make([]any, len(n.list))
		for i, c := range n.list {
			out[i] = c.freeze()
		}
		return out
	}
	return n.value
}

// clone returns a node that can be changed without changing this one.
func (n *node) clone() *node {
	out := &node{value: n.value, isList: n.isList, list: slices.Clone(n.list)}
	for i, c := range out.list {
		out.list[i] = c.clone()
	}
	if n.object != nil {
		out.object = make(map[string]*node, len(n.object))
		for k, c := range n.object {
			out.object[k] = c.clone()
		}
	}
	return out
}

// weight counts the values in a node, or says at least limit when there are more.
func (n *node) weight(limit int) int {
	sum := 1
	switch {
	case n.object != nil:
		for _, c := range n.object {
			if sum >= limit {
				break
			}
			sum += c.weight(limit - sum)
		}
	case n.isList:
		for _, c := range n.list {
			if sum >= limit {
				break
			}
			sum += c.weight(limit - sum)
		}
	default:
		sum = weight(n.value, limit)
	}
	return sum
}

func weight(v any, limit int) int {
	sum := 1
	switch v := plain(v).(type) {
	case map[string]any:
		for _, c := range v {
			if sum >= limit {
				break
			}
			sum += weight(c, limit-sum)
		}
	case []any:
		for _, c := range v {
			if sum >= limit {
				break
			}
			sum += weight(c, limit-sum)
		}
	}
	return sum
}
