package strict_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode checks that input causes no panic and gives the same values and faults each time.
func FuzzDecode(f *testing.F) {
	type inner struct {
		Port  uint16         `json:"port"`
		Wait  *span          `json:"wait"`
		Names []string       `json:"names"`
		Any   map[string]any `json:"any"`
	}
	type config struct {
		Name  string           `json:"name"`
		Inner inner            `json:"inner"`
		Map   map[string]inner `json:"map"`
		Raw   raw              `json:"raw"`
		F     float32          `json:"f"`
		B     []byte           `json:"b"`
	}
	for _, s := range []string{
		"name: a\ninner: {port: 1, wait: 1s, names: [a], any: {x: [1, {}]}}\nmap: {a: {port: 2}}\nraw: {b: 1}\nf: 1.5\n" +
			"b: aGk=\n", `{"name":"a","inner":{"port":65536}}`, "a: 1\n---\nb: 2\n", "- 1", "name: ~", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a, b config
		fa := decode("f", data, &a)
		fb := decode("f", data, &b)
		if d := cmp.Diff(fa, fb); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Fatal(d)
		}
	})
}
