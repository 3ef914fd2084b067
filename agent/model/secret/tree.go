package secret

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// parse parses a text with one document. It returns nil if there is none.
func parse(text string) *strict.Node {
	n, _ := strict.One([]byte(text), strict.Limits{}.WithDefaults())
	return n
}

// WithoutKeys returns a JSON document with [Redacted] for each string that contains a private key,
// in any field. The order of fields does not change.
func WithoutKeys(doc []byte) ([]byte, error) {
	if !slices.ContainsFunc(keyWords[:], func(w string) bool { return bytes.Contains(doc, []byte(w)) }) {
		return doc, nil
	}
	n := strict.JSON(doc)
	if n == nil {
		return nil, fmt.Errorf("a document of %d bytes contains a private key, but cannot be parsed to redact it", len(doc))
	}
	return hideKeys(n).JSON(), nil
}

// hideKeys redacts the strings of a tree that contain private keys.
func hideKeys(n *strict.Node) *strict.Node {
	if n.Kind == strict.String && HoldsKey(n.Text) {
		return &strict.Node{Kind: strict.String, Line: n.Line, Size: 1, Text: Redacted}
	}
	return n.Mapped(func(_ string, _ int, v *strict.Node) *strict.Node { return hideKeys(v) })
}

// Number returns redacted documents with numbered marks: equal secrets in the real documents have
// equal numbers. With fewer than two secrets, or for a document without marks, it returns the
// document itself.
func Number(shown, real [2][]byte) [2][]byte {
	numbers := map[string]int{}
	var trees [2]*strict.Node
	for i := range shown {
		if !bytes.Contains(shown[i], []byte(Redacted)) {
			continue
		}
		if s, r := parse(string(shown[i])), parse(string(real[i])); s != nil && r != nil {
			trees[i] = numbered(s, r, numbers)
		}
	}
	for i, n := range trees {
		if n != nil && len(numbers) > 1 {
			shown[i] = n.JSON()
		}
	}
	return shown
}

// numbered returns a redacted tree with numbered marks, by the secrets of the real tree.
func numbered(n, real *strict.Node, numbers map[string]int) *strict.Node {
	switch {
	case n.Kind == strict.Mapping && real.Kind == strict.Mapping:
		return n.Mapped(func(key string, _ int, v *strict.Node) *strict.Node {
			if r := real.Get(key); r != nil {
				return numbered(v, r, numbers)
			}
			return v
		})
	case n.Kind == strict.List && real.Kind == strict.List && len(n.Items) == len(real.Items):
		return n.Mapped(func(_ string, i int, v *strict.Node) *strict.Node { return numbered(v, real.Items[i], numbers) })
	case n.Kind == strict.String && strings.Contains(n.Text, Redacted) &&
		(real.Kind != strict.String || n.Text != real.Text):
		secret := string(real.Canonical())
		if numbers[secret] == 0 {
			numbers[secret] = len(numbers) + 1
		}
		out := *n
		out.Text = strings.ReplaceAll(n.Text, Redacted, fmt.Sprintf("%s%d]", redactedBefore, numbers[secret]))
		return &out
	}
	return n
}
