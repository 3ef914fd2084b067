package gossip

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestManyItems checks that 5,000 items of a node reach another one, and that a change of one item
// arrives too. It logs the delays.
func TestManyItems(t *testing.T) {
	t.Parallel()
	a := socketNode(t, 1, Options{})
	defer a.stop()
	b := socketNode(t, 2, Options{}, a)
	defer b.stop()
	waitFor(t, b, "it agrees", func() bool {
		for _, m := range b.Members() {
			if !m.Self && m.Agrees {
				return true
			}
		}
		return false
	})
	var items []engine.OwnItem
	for i := range 5000 {
		items = append(items, engine.OwnItem{Key: engine.Key{Kind: "Dataplane", Mesh: "default",
			Name: fmt.Sprintf("backend-deployment-7d9fb8c6b5-%05d", i)}, Body: []byte(strings.Repeat("x", 600) + fmt.Sprint(i))})
	}
	has := func(i int) func() bool {
		return func() bool {
			o, ok := b.OwnedBy(simID(1))
			return ok && len(o.Items) == len(items) && string(o.Items[i].Body) == string(items[i].Body)
		}
	}
	publish := func(i int) {
		began := time.Now()
		if err := a.SetOwn(items); err != nil {
			t.Fatal(err)
		}
		published := time.Since(began)
		waitFor(t, b, "it has all items", has(i))
		t.Logf("published in %v, on the other node after %v", published, time.Since(began))
	}
	publish(0)
	items[77].Body = []byte("changed")
	publish(77)
}
