package rendered_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/serve/rendered"
)

// TestRenderCacheIsBounded puts more into a cache than its capacity: the most recently used entries
// stay, and the total size is bounded.
func TestRenderCacheIsBounded(t *testing.T) {
	var c rendered.Cache
	key := func(i int) generate.RenderKey { return generate.RenderKey{TypeURL: "t", Version: fmt.Sprint(i)} }
	value := json.RawMessage(bytes.Repeat([]byte("x"), 64<<10))
	const n = 1000
	for i := range n {
		c.Put(key(i), value)
		if c.Get(key(0)) == nil {
			t.Fatalf("an entry that is in use is gone after %d more", i)
		}
	}
	if c.Get(key(n-1)) == nil || c.Get(key(1)) != nil {
		t.Error("the last entry is gone, or the first one is not")
	}
	held := 0
	for i := range n {
		held += len(c.Get(key(i)))
	}
	if held == 0 || held > 16<<20 {
		t.Errorf("the cache holds %d bytes", held)
	}
	c.Put(key(n), make(json.RawMessage, 9<<20))
	if c.Get(key(n)) != nil {
		t.Error("an entry that would displace all others is held")
	}
	for i := range 200_000 {
		c.Put(key(-i), json.RawMessage("{}"))
	}
	held = 0
	for i := range 200_000 {
		if c.Get(key(-i)) != nil {
			held++
		}
	}
	if held == 0 || held > 110_000 {
		t.Errorf("the cache holds %d small entries", held)
	}
}
