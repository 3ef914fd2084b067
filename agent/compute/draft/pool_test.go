package draft_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// TestPackedResourcesAreShared checks that proxies with equal resources share them, and that a pool
// has no entry for each resource that differs between proxies.
func TestPackedResourcesAreShared(t *testing.T) {
	p, text := draft.NewPool(), bytes.Repeat([]byte("the body of a route "), 20)
	seal := func(proxy int, previous *draft.Sealed) *draft.Resource {
		return p.Seal(draft.RankRoute, "r", fmt.Appendf(nil, "%s of proxy %d", text, proxy), previous)
	}
	seal(0, nil)
	before := p.Len()
	first := seal(1, nil)
	if !first.IsPacked() || seal(1, nil) != first {
		t.Errorf("packed: %t, or not shared", first.IsPacked())
	}
	for proxy := range 1000 {
		seal(proxy, nil)
	}
	if n := p.Len(); n != before {
		t.Errorf("%d entries, want %d as with one proxy", n, before)
	}
	p.Sweep()
	previous := &draft.Sealed{}
	previous.Resources[draft.RankRoute] = []*draft.Resource{first}
	if seal(1, previous) != first {
		t.Error("the next config of the proxy has a copy")
	}
	if other := seal(2, previous); other == first || !bytes.HasSuffix(other.Body(), []byte("proxy 2")) {
		t.Errorf("another resource: %s", other.Body())
	}
}
