package envoy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// TestPacked checks that a packed resource returns its original bytes, and that it is packed only
// if it is similar to the base.
func TestPacked(t *testing.T) {
	text := func(name string) []byte {
		var b strings.Builder
		for i := range 20 {
			fmt.Fprintf(&b, "field %d of svc-7, a text that all have; ", i)
			if i%5 == 0 {
				fmt.Fprintf(&b, "\x0a%c%s", len(name), name)
			}
		}
		return []byte(b.String())
	}
	base := envoy.Raw(envoy.KindCluster, "svc-7", "v", text("web-1")).Base()
	for name, body := range map[string][]byte{
		"the same": text("web-1"), "of the same length": text("web-2"), "longer": text("web-17"),
		"much longer": text("payments-" + strings.Repeat("x", 30)), "shorter": text("w"), "empty": text(""),
		"the half of it": text("web-1")[:400], "more than it": append(text("web-1"), text("web-2")[:200]...),
	} {
		r := envoy.Packed("svc-7", "w", body, nil, base)
		if r == nil {
			t.Errorf("%s is not packed", name)
			continue
		}
		if got := r.Body(); !bytes.Equal(got, body) || r.Len() != len(body) || r.Name != "svc-7" || r.Version != "w" ||
			!r.IsPacked() {
			t.Errorf("%s: got %q", name, got)
		}
		if got := r.AppendBody([]byte("x")); !bytes.Equal(got[1:], body) {
			t.Errorf("%s: appended %q", name, got)
		}
		if r.Base() != nil {
			t.Errorf("%s is the base of another one, though it is packed", name)
		}
	}
	for name, body := range map[string][]byte{
		"small":   []byte("svc-7"),
		"another": bytes.Repeat([]byte("0123456789 abc"), 40),
	} {
		if envoy.Packed("svc-7", "w", body, nil, base) != nil {
			t.Errorf("%s is packed", name)
		}
	}
}

// FuzzPacked checks that a packed resource returns its original bytes for arbitrary bodies.
func FuzzPacked(f *testing.F) {
	long := bytes.Repeat([]byte("some text that is long "), 20)
	f.Add(long, bytes.Replace(long, []byte("text"), []byte("words"), 3))
	f.Add(long, long[7:])
	f.Add([]byte{}, long)
	f.Add(append(long[:100:100], long[200:]...), long)
	f.Fuzz(func(t *testing.T, base, body []byte) {
		r := envoy.Packed("r", "v", body, nil, envoy.Whole("r", "b", base, nil).Base())
		if r != nil && (!bytes.Equal(r.Body(), body) || r.Len() != len(body)) {
			t.Fatalf("got %q", r.Body())
		}
	})
}
