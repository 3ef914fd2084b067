package store_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

func setAddresses(t *testing.T, s *store.Store, pairs ...string) {
	t.Helper()
	changes := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		changes[k] = v
	}
	if err := s.SetAddresses(changes); err != nil {
		t.Fatal(err)
	}
}

func addresses(s *store.Store) string {
	m := s.Addresses()
	var out []string
	for _, k := range []string{"a", "b", "c"} {
		if v, ok := m[k]; ok {
			out = append(out, k+"="+v)
		}
	}
	return strings.Join(out, " ")
}

// TestAddresses checks that addresses survive a restart, also in a file of an earlier version.
func TestAddresses(t *testing.T) {
	path := filled(t, 1)
	s := open(t, path)
	before := contents(s)
	want(t, "none", len(s.Addresses()), 0)
	setAddresses(t, s, "a=1", "b=2", "c=3")
	setAddresses(t, s, "a=", "b=4", "missing=")
	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "addresses", addresses(s), "b=4 c=3")
	want(t, "contents", contents(s), before)
	if err := s.SetAddresses(map[string]string{strings.Repeat("x", 20_000): "1"}); err == nil ||
		!strings.Contains(err.Error(), "20000 bytes") {
		t.Errorf("a key that is too long: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.SetAddresses(map[string]string{"a": "1"}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

// TestDamagedAddress checks that a damaged address is quarantined and the others remain.
func TestDamagedAddress(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	setAddresses(t, s, "a=1", "b=2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("vips")).Put([]byte("a"), []byte("12341")) })
	s = open(t, path)
	want(t, "addresses", addresses(s), "b=2")
	if q := s.Health().Quarantined; len(q) != 1 || q[0].Bucket != "vips" || q[0].Key != `"a"` ||
		!strings.Contains(q[0].Reason, "checksum") {
		t.Errorf("quarantined: %+v", q)
	}
	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "addresses", addresses(s), "b=2")
}

// TestAddressesWithoutDisk makes the disk reject writes, and removes the file.
func TestAddressesWithoutDisk(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	setAddresses(t, s, "a=1", "b=2")
	s.SetFault(func() error { return errors.New("full") })
	if err := s.SetAddresses(map[string]string{"a": "", "c": "3"}); err == nil || s.Health().Persistent {
		t.Errorf("a full disk: %v", err)
	}
	want(t, "addresses in memory", addresses(s), "b=2 c=3")
	s.SetFault(nil)
	mustPut(t, s, api, "x", "x")
	s = reopen(t, s, path)
	want(t, "addresses after the disk is back", addresses(s), "b=2 c=3")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	setAddresses(t, s, "a=5")
	s = reopen(t, s, path)
	want(t, "addresses in the new file", addresses(s), "a=5 b=2 c=3")
}
