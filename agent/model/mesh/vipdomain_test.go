package mesh_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// TestDomainAddresses checks that names outside the mesh have virtual addresses like services: the
// same on every node, unchanged over restarts and while others come and go, and free a while after
// their removal.
func TestDomainAddresses(t *testing.T) {
	set, now := tagged([]string{"web", "api"}), time.Unix(1_800_000_000, 0)
	build := func(known *virtualip.Set, domains ...string) *mesh.View {
		t.Helper()
		v, err := mesh.Build(set,
			"default", mesh.Options{VIPs: virtualip.Options{Known: known, Now: now, Hold: time.Hour, Domains: domains}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := build(nil, "db.example.com", "mq.example.com")
	db, db6 := a.Domain("db.example.com")
	mq, _ := a.Domain("mq.example.com")
	usual := virtualip.DefaultRanges().MeshExternalService
	if !usual.V4.Contains(db) || !usual.V6.Contains(db6) || db == mq {
		t.Errorf("addresses %s, %s and %s", db, db6, mq)
	}
	if got, _ := build(nil, "db.example.com").Domain("db.example.com"); got != db {
		t.Errorf("%s on a node that knows the name alone, %s on another one", got, db)
	}
	if v4, v6 := a.Domain("web.example.com"); v4.IsValid() || v6.IsValid() {
		t.Errorf("a name that nobody asked for has %s and %s", v4, v6)
	}
	if without := build(nil); without.Catalog == a.Catalog ||
		a.Catalog != build(nil, "db.example.com", "mq.example.com").Catalog {
		t.Error("the catalog does not tell of the addresses")
	}
	b := build(virtualip.New(a.VIPs().Entries()), "mq.example.com")
	if got, _ := b.Domain("mq.example.com"); got != mq {
		t.Errorf("%s after a restart, %s before", got, mq)
	}
	now = now.Add(time.Minute)
	if got, _ := build(b.VIPs(), "db.example.com", "mq.example.com").Domain("db.example.com"); got != db {
		t.Errorf("%s where the name comes back, %s before", got, db)
	}
	now = now.Add(2 * time.Hour)
	for _, e := range build(b.VIPs(), "mq.example.com").VIPs().Entries() {
		if (e.V4 == db || e.V4 == netip.Addr{}) {
			t.Errorf("the address of a name that is gone is still remembered: %+v", e)
		}
	}
}
