package store_test

import (
	"errors"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestPublishedPrecedence checks which sources may replace resources of published directories, and
// which of them these may replace.
func TestPublishedPrecedence(t *testing.T) {
	published := store.Source{Kind: store.SourcePublished, Detail: "/srv/mesh"}
	other := store.Source{Kind: store.SourcePublished, Detail: "team"}
	gossip := store.Source{Kind: store.SourceGossip, Detail: "n2"}
	for _, c := range []struct {
		from, to store.Source
		allowed  bool
	}{
		{published, other, true}, {published, fileA, true}, {fileA, published, true},
		{published, api, false}, {published, gossip, false}, {api, published, false}, {gossip, published, false},
		{published, envoy, false}, {envoy, published, false},
	} {
		s := memory(t)
		mustPut(t, s, c.from, "a", "one")
		_, err := put(s, c.to, "a", "two")
		var conflict *store.ConflictError
		if (err == nil) != c.allowed || err != nil && !errors.As(err, &conflict) {
			t.Errorf("%s replaces %s: %v, want allowed=%t", c.to, c.from, err, c.allowed)
		}
	}
	c := store.Conflict{Key: key("a"), Owner: published, Wanted: api, Commit: "c1"}
	want(t, "remedy", c.String(), "Note/default/a belongs to published:/srv/mesh and cannot be changed by api: change it "+
		"in the files of the directory /srv/mesh, which is published at commit c1")
}
