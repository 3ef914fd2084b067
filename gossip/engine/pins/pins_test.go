package pins

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func id(n int) sign.ID { return sign.ID{byte(n), byte(n >> 8), 1} }

// signer returns a key that depends only on n.
func signer(n byte) sign.Signer {
	return sign.Key(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+n)), ed25519.SeedSize))))
}

// reload saves a book and loads it again.
func reload(t *testing.T, disk map[string][]byte, b *Book, now time.Time) *Book {
	t.Helper()
	for _, c := range b.Changes() {
		if disk[c.Name] = c.Value; c.Value == nil {
			delete(disk, c.Name)
		}
	}
	next := New()
	for name, value := range disk {
		if err := next.Load(name, value); err != nil {
			t.Fatal(err)
		}
	}
	next.Start(now)
	return next
}

// TestFirstKeyKeepsName checks that a second key gets a name only 24 h after the death of the first
// one, and at once after the pin was forgotten or assigned to it.
func TestFirstKeyKeepsName(t *testing.T) {
	b := New()
	if _, ok := b.Claim("web-1", id(1), start); !ok {
		t.Fatal("the first key is refused")
	}
	for age, want := range map[time.Duration]bool{0: false, time.Hour: false, EndsAfter - 1: false, EndsAfter: true} {
		if holder, ok := b.Usable("web-1", id(2), start.Add(age)); ok != want || !ok && holder.Key != id(1) {
			t.Errorf("after %s: usable %v, held by %s", age, ok, holder.Key)
		}
		if _, ok := b.Usable("web-1", sign.ID{}, start.Add(age)); ok != want {
			t.Errorf("after %s, a node without a key: usable %v", age, ok)
		}
	}
	b.Touch(id(1), start.Add(time.Hour))
	if _, ok := b.Claim("web-1", id(2), start.Add(EndsAfter)); ok {
		t.Error("the key was alive later, and lost its name")
	}
	if _, ok := b.Claim("web-1", id(2), start.Add(EndsAfter+time.Hour)); !ok {
		t.Error("the key is dead, and keeps its name")
	}
	if _, ok := b.Of(id(1)); ok {
		t.Error("the former key still has a pin")
	}
	b.Forget(id(2))
	if _, ok := b.Claim("web-1", id(3), start.Add(EndsAfter+time.Hour)); !ok {
		t.Error("a forgotten key keeps its name")
	}
	b.Assign("web-1", id(4), start.Add(EndsAfter+time.Hour))
	if p, _ := b.Holder("web-1"); p.Key != id(4) {
		t.Errorf("an assigned name belongs to %s", p.Key)
	}
}

// TestRename checks that a key has one name, and that a rename keeps the time since which the key
// is known.
func TestRename(t *testing.T) {
	b := New()
	b.Claim("a", id(1), start)
	b.Claim("b", id(2), start)
	if _, ok := b.Claim("b", id(1), start.Add(time.Hour)); ok {
		t.Error("a key got the name of another one")
	}
	b.Claim("c", id(1), start.Add(time.Hour))
	if p, ok := b.Of(id(1)); !ok || p.Name != "c" || p.First != start {
		t.Errorf("after a rename: %+v", p)
	}
	if _, ok := b.Holder("a"); ok || len(b.All()) != 2 {
		t.Errorf("pins %+v", b.All())
	}
	b.Claim("", id(3), start)
	b.Claim("d", sign.ID{}, start)
	if len(b.All()) != 2 {
		t.Errorf("an empty name or no key is pinned: %+v", b.All())
	}
}

// TestRestart checks that pins survive a restart, and that the time in which the node was off does
// not count as death of the keys.
func TestRestart(t *testing.T) {
	b, disk := New(), map[string][]byte{}
	b.Claim("self", id(1), start)
	b.Claim("alive", id(2), start)
	b.Claim("dead", id(3), start)
	b = reload(t, disk, b, start)
	for _, key := range []sign.ID{id(1), id(2)} {
		b.Touch(key, start.Add(23*time.Hour))
	}
	now := start.Add(72 * time.Hour)
	b = reload(t, disk, b, now)
	for name, left := range map[string]time.Duration{"self": EndsAfter, "alive": EndsAfter, "dead": time.Hour} {
		p, _ := b.Holder(name)
		if got := EndsAfter - now.Sub(p.Alive); got != left || !p.First.Equal(start) {
			t.Errorf("%s: the pin ends in %s, want %s; first %s", name, got, left, p.First)
		}
	}
	if len(b.Changes()) != 0 {
		t.Error("loaded pins are saved again")
	}
	for name, value := range map[string][]byte{"": make([]byte, valueSize), "short": {1}, "alive": disk["dead"],
		"other": disk["dead"], strings.Repeat("x", 254): disk["dead"]} {
		if err := b.Load(name, value); err == nil {
			t.Errorf("%q is loaded", name)
		}
	}
}

// TestSaves checks that signs of life are saved each 10 minutes, not each time.
func TestSaves(t *testing.T) {
	b := New()
	b.Claim("a", id(1), start)
	saved := len(b.Changes())
	for s := range 3600 {
		b.Touch(id(1), start.Add(time.Duration(s)*time.Second))
		saved += len(b.Changes())
	}
	if saved != 6 {
		t.Errorf("%d writes in an hour, want 6", saved)
	}
	b.Forget(id(1))
	if c := b.Changes(); len(c) != 1 || c[0].Name != "a" || c[0].Value != nil {
		t.Errorf("after Forget: %+v", c)
	}
}

// TestFull checks that a process that claims many names cannot displace older pins, and that the
// book is bounded.
func TestFull(t *testing.T) {
	b := New()
	name := func(i int) string { return fmt.Sprint("node-", i) }
	b.Claim("old", id(1), start)
	b.Claim("ended", id(2), start.Add(-EndsAfter))
	for i := range 2 * Max {
		b.Claim(name(i), id(i+10), start.Add(time.Hour+time.Duration(i)*time.Second))
	}
	if n := len(b.All()); n != Max {
		t.Errorf("%d pins, at most %d are allowed", n, Max)
	}
	if _, ok := b.Holder("old"); !ok {
		t.Error("the oldest pin was dropped")
	}
	if _, ok := b.Holder("ended"); ok {
		t.Error("a pin that has ended is still there")
	}
}

// TestStatement checks that only the former key can pass its name on, and only to one key.
func TestStatement(t *testing.T) {
	next := sign.Fingerprint(signer(1).Public())
	b, err := Statement(signer(0), "pool", "web-1", next)
	if err != nil || len(b) != sign.Size {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if former, err := CheckStatement(b, "pool", "web-1", next); err != nil ||
		former != sign.Fingerprint(signer(0).Public()) {
		t.Errorf("signed by %s: %v", former, err)
	}
	same, _ := Statement(signer(1), "pool", "web-1", next)
	for what, err := range map[string]error{
		"cluster": second(CheckStatement(b, "other", "web-1", next)),
		"name":    second(CheckStatement(b, "pool", "web-2", next)),
		"key":     second(CheckStatement(b, "pool", "web-1", id(9))),
		"size":    second(CheckStatement(b[1:], "pool", "web-1", next)),
		"itself":  second(CheckStatement(same, "pool", "web-1", next)),
	} {
		if err == nil {
			t.Errorf("a statement with another %s is accepted", what)
		}
	}
}

func second(_ sign.ID, err error) error { return err }
