package resource

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Shown returns the JSON of a resource as it may be shown to everybody: that of [Marshal] with
// [Redacted] for each secret. Secrets are what stands in a field of a secret type, and every text
// that holds a private key.
func Shown(r *Resource) ([]byte, error) {
	b, _, err := marshal(r, false)
	if err != nil {
		return nil, err
	}
	return WithoutKeys(b)
}

// ShownSpec returns the JSON of the spec of a resource as [Shown] has it.
func ShownSpec(r *Resource) ([]byte, error) {
	b, _, err := marshalSpec(r.Spec, false)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", r.Key, err)
	}
	return WithoutKeys(b)
}

// WithoutKeys returns a JSON document with [Redacted] for each text that holds a private key,
// whatever field it stands in. The fields keep their order.
func WithoutKeys(doc []byte) ([]byte, error) {
	if !slices.ContainsFunc(keyWords[:], func(w string) bool { return bytes.Contains(doc, []byte(w)) }) {
		return doc, nil
	}
	const deep = 1000 // the documents are made by the program
	n, _, _ := parseJSON(doc, 1, Limits{Depth: deep}, len(doc))
	if n == nil {
		return nil, fmt.Errorf("a document of %d bytes holds a private key, and cannot be read to take it out", len(doc))
	}
	var b bytes.Buffer
	hideKeys(n).write(&b)
	return b.Bytes(), nil
}

// hideKeys replaces the texts of a tree that hold private keys.
func hideKeys(n *node) *node {
	if n.kind == nodeString && holdsKey(n.text) {
		return &node{kind: nodeString, line: n.line, size: 1, text: Redacted}
	}
	return n.mapped(func(string) func(*node) *node { return hideKeys })
}

// write writes a tree as JSON, in the order in which it was read.
func (n *node) write(b *bytes.Buffer) {
	switch n.kind {
	case nodeMapping:
		for i, p := range n.pairs {
			b.WriteByte("{,"[min(i, 1)])
			key, _ := marshalValue(p.key)
			b.Write(key)
			b.WriteByte(':')
			p.value.write(b)
		}
		if len(n.pairs) == 0 {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	case nodeList:
		b.WriteByte('[')
		for i, it := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			it.write(b)
		}
		b.WriteByte(']')
	default:
		b.Write(canonical(n))
	}
}

// ShownPair returns two states of a resource as [Shown], for a comparison: where a secret differs,
// so does what stands for it. With several secrets their marks are numbered, and equal ones have
// the same number.
func ShownPair(from, to *Resource) (docs [2][]byte, err error) {
	numbers := map[string]int{}
	var trees [2]*node
	for i, r := range [...]*Resource{from, to} {
		if docs[i], err = Shown(r); err != nil || !bytes.Contains(docs[i], []byte(Redacted)) {
			if err != nil {
				return docs, err
			}
			continue
		}
		real, err := Marshal(r)
		if err != nil {
			return docs, err
		}
		if shown, real := parseText(string(docs[i])), parseText(string(real)); shown != nil && real != nil {
			trees[i] = shown.numbered(real, numbers)
		}
	}
	if len(numbers) < 2 {
		return docs, nil
	}
	for i, n := range trees {
		if n != nil {
			var b bytes.Buffer
			n.write(&b)
			docs[i] = b.Bytes()
		}
	}
	return docs, nil
}

// numbered returns a shown tree with numbers in its marks, by the secrets of the real tree.
func (n *node) numbered(real *node, numbers map[string]int) *node {
	switch {
	case n.kind == nodeMapping && real.kind == nodeMapping:
		return n.mapped(func(key string) func(*node) *node {
			return func(v *node) *node {
				if r := real.get(key); r != nil {
					return v.numbered(r, numbers)
				}
				return v
			}
		})
	case n.kind == nodeList && real.kind == nodeList && len(n.items) == len(real.items):
		i := -1
		return n.mapped(func(string) func(*node) *node {
			i++
			at := i
			return func(v *node) *node { return v.numbered(real.items[at], numbers) }
		})
	case n.kind == nodeString && strings.Contains(n.text, Redacted) && (real.kind != nodeString || n.text != real.text):
		secret := string(canonical(real))
		if numbers[secret] == 0 {
			numbers[secret] = len(numbers) + 1
		}
		out := *n
		out.text = strings.ReplaceAll(n.text, Redacted, fmt.Sprintf("%s%d]", redactedBefore, numbers[secret]))
		return &out
	}
	return n
}
