package store_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// refusingPool refuses all changes.
type refusingPool struct{}

func (refusingPool) Seal([]engine.Put) ([]*engine.Record, func(), error) {
	return nil, nil, errors.New("the clock is wrong")
}

func (refusingPool) Drafts([]engine.Key) ([]draft.Draft, error) { return nil, nil }

// TestPoolRefuses checks that a refused write leaves no trace.
func TestPoolRefuses(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	s.Connect(refusingPool{})
	_, err := put(s, api, "a", "2")
	var refused *store.SealError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	for range 2 {
		want(t, "contents", contents(s), "a=1@1 api")
		want(t, "history", revisions(s, "a"), "1:1")
		want(t, "versions", versions(s), "a=1 by here")
		s = reopen(t, s, path)
	}
}

// TestOvertakenByVersion merges a version of another node while a write waits for the disk. The
// greater one is in force, and the write is acknowledged.
func TestOvertakenByVersion(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{time.Minute, "a=remote by there"}, {-time.Minute, "a=local by here"}} {
		s, d, path := slow(t)
		release, done := inFlight(t, s, d, "a", "local")
		b := store.Batch{Source: store.Source{Kind: store.SourceGossip}}
		b.Ops = append(b.Ops, s.Merge(remote(t, time.Now().Add(c.after), nil, "a", "remote")))
		if _, err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
		release(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			want(t, "versions", versions(s), c.want)
			name, content, _ := strings.Cut(c.want, "=")
			if got := withoutRevisions(s); !strings.HasPrefix(got, name+"="+strings.Fields(content)[0]+" ") {
				t.Errorf("in force: %s", got)
			}
			s = reopen(t, s, path)
		}
	}
}

// TestOvertakenByTombstone merges a later deletion of a resource while the write that creates it
// waits for the disk. The deletion changes no content yet, and wins.
func TestOvertakenByTombstone(t *testing.T) {
	s, d, path := slow(t)
	release, done := inFlight(t, s, d, "a", "local")
	b := store.Batch{Source: store.Source{Kind: store.SourceGossip}}
	b.Ops = append(b.Ops, s.Merge(remote(t, time.Now().Add(time.Minute), nil, "a", "")))
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
	release(nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, "versions", versions(s), "a=deleted by there")
		want(t, "contents", withoutRevisions(s), "")
		s = reopen(t, s, path)
	}
}

// TestUnverifiedVersions opens a file that an earlier build has written, which does not verify
// signatures. A version with an invalid signature is not loaded; the content in the history
// replaces it, unsigned and earlier than all others.
func TestUnverifiedVersions(t *testing.T) {
	signed := func(seed byte, name string) *engine.Record {
		of := other
		of.Signer = sign.Key(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
		b, err := json.Marshal(noteJSON{"Note", "default", name, "text"})
		if err != nil {
			t.Fatal(err)
		}
		v, err := engine.Successor(time.Now(), nil, engine.Put{Key: engine.Key(key(name)), MediaType: "application/json",
			Body: b}, of)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	good, bad := signed(1, "good"), signed(2, "bad")
	raw := bytes.Clone(bad.Encoded())
	raw[len(raw)-1] ^= 1
	forged, err := engine.LoadRecord(raw) // as an earlier build has done
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range byte(2) {
		path := tempPath(t)
		s := open(t, path)
		merge(t, s, good, forged)
		if err := s.WritePoolState([]engine.Op{{Bucket: "meta", Key: "verified", Value: []byte{0}},
			{Bucket: "meta", Key: "epoch", Value: []byte{epoch}}}); err != nil {
			t.Fatal(err)
		}
		s = reopen(t, s, path)
		v := s.Version(key("bad"))
		if got := v.Signer() == forged.Signer(); got != (epoch == 0) || s.Version(key("good")).Signer() != good.Signer() {
			t.Errorf("epoch %d: signer %s of %s", epoch, v.Signer(), v.ID())
		}
		if epoch == 1 && v.HLC >= forged.HLC {
			t.Errorf("the content of history has the version %s, after that of a peer", v.ID())
		}
	}
}

// statefulPool writes state of the pool when it hears of a commit.
type statefulPool struct {
	s *store.Store
	t *testing.T
}

func (p statefulPool) Drafts([]engine.Key) ([]draft.Draft, error) { return nil, nil }

func (p statefulPool) Seal(puts []engine.Put) (out []*engine.Record, committed func(), err error) {
	for _, put := range puts {
		v, err := engine.Successor(time.Now(), nil, put, origin)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, v)
	}
	return out, func() {
		if err := p.s.WritePoolState([]engine.Op{{Bucket: "meta", Key: "k", Value: []byte("v")}}); err != nil {
			p.t.Error(err)
		}
	}, nil
}

// TestCommittedMayWrite checks that the pool may write to the store when it hears of a commit.
func TestCommittedMayWrite(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	s.Connect(statefulPool{s, t})
	mustPut(t, s, api, "a", "1")
	s = reopen(t, s, path)
	want(t, "state", len(s.TakePoolState()), 1)
}

// TestOneTransaction checks that a write of an operator needs one transaction, with which its
// version is on disk.
func TestOneTransaction(t *testing.T) {
	path, transactions := tempPath(t), 0
	o := options(path)
	o.Sync = func() error { transactions++; return nil }
	s := openWith(t, o)
	for i, write := range []func() (store.Record, error){
		func() (store.Record, error) { return put(s, api, "a", "1") },
		func() (store.Record, error) { return put(s, api, "a", "2") },
		func() (store.Record, error) { return put(s, api, "b", "1") },
		func() (store.Record, error) { return del(s, api, "b") },
	} {
		_ = s.Flush()
		before := transactions
		if _, err := write(); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if n := transactions - before; n != 1 {
			t.Errorf("write %d took %d transactions", i, n)
		}
	}
	had := versions(s)
	want(t, "versions", versions(reopen(t, s, path)), had)
}
