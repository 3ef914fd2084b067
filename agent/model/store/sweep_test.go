package store_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

var sweepBits = flag.Int("bits", 2, "bits to flip in each page of the sweep")

// lived creates a state file with resources that were changed, deleted, and recreated. It returns
// the final contents, with "" for deleted resources.
func lived(t testing.TB) (path string, truth map[string]string) {
	t.Helper()
	path, truth = tempPath(t), map[string]string{}
	o := options(path)
	o.Now = clock() // so that each run creates the same file
	s := openWith(t, o)
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 60 {
		var ops []store.Op
		for range 5 {
			name := fmt.Sprintf("n%02d", r.IntN(60))
			switch have, known := truth[name]; {
			case known && have != "" && r.IntN(3) == 0:
				ops = append(ops, store.Op{Delete: key(name)})
				truth[name] = ""
			default:
				truth[name] = fmt.Sprintf("round %d %s", round, strings.Repeat("text ", r.IntN(60)))
				ops = append(ops, store.Op{Put: res(name, truth[name])})
			}
		}
		if _, err := s.Apply(store.Batch{Source: api, Durable: true, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetAddresses(map[string]string{"a": "240.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, api, "large", strings.Repeat("large ", 3000))
	truth["large"] = strings.Repeat("large ", 3000)
	mustPut(t, s, api, "permission", "allow")
	mustDel(t, s, api, "permission")
	truth["permission"] = ""
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, truth
}

// inForce checks that a store contains no earlier revision and no deleted resource, and returns the
// missing ones.
func inForce(t testing.TB, what string, s *store.Store, truth map[string]string) (lacks []string) {
	t.Helper()
	snap := s.Snapshot()
	for _, r := range snap.Records() {
		if want, known := truth[r.Name]; !known || text(r.Resource) != want {
			t.Errorf("%s: %s is in force as %.30q, want %.30q", what, r.Name, text(r.Resource), want)
		}
	}
	for name, want := range truth {
		_, damaged := snap.Damaged(key(name))
		_, there := snap.Get(key(name))
		switch {
		case there && damaged:
			t.Errorf("%s: %s is in force and damaged", what, name)
		case want != "" && !there && !damaged:
			t.Errorf("%s: %s is gone, and nothing is said of it", what, name)
		case damaged:
			lacks = append(lacks, name)
		}
	}
	return lacks
}

// TestFlippedBits flips bits in each page of a state file in turn, and clears the page. No earlier
// revision or deleted resource comes back at the next start or later, and lost resources stay in
// the report.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	source, truth := lived(t)
	good, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	bits := *sweepBits
	const page = 4096
	step := page
	if testing.Short() {
		step = 8 * page
	}
	r := rand.New(rand.NewPCG(7, 8))
	flips, aside, lost, named := 0, 0, 0, 0
	for at := 0; at < len(good); at += step {
		for i := range bits + 1 {
			flips++
			bit := r.IntN(8 * page)
			if i%2 == 0 {
				bit = r.IntN(8 * 300) // the header, and the first elements
			}
			bad := bytes.Clone(good)
			bad[at+bit/8] ^= 1 << (bit % 8)
			if i == bits { // the whole page is cleared
				clear(bad[at : at+page])
				bit = -1
			}
			path := tempPath(t)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("page %d bit %d (-1: all)", at/page, bit)
			s := open(t, path)
			lacks := inForce(t, what, s, truth)
			if s.Health().SetAside != "" {
				aside++
			}
			if len(lacks) > 0 {
				named++
				lost += len(lacks)
			}
			for n := range 2 {
				s = reopen(t, s, path)
				if reopened := inForce(t, what+", started again", s, truth); len(reopened) != len(lacks) {
					t.Errorf("%s: %d resources are damaged after %d restarts, %d before", what, len(reopened), n+1, len(lacks))
				}
			}
			for _, name := range lacks {
				if truth[name] == "" {
					mustDel(t, s, api, name)
				} else {
					mustPut(t, s, api, name, truth[name])
				}
			}
			s = reopen(t, s, path)
			healthy(t, s)
			if len(inForce(t, what+", repaired", s, truth)) > 0 {
				t.Errorf("%s: resources are damaged that were written or deleted", what)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d flips in %d pages: the file was set aside %d times, %d times resources were damaged, %d in all",
		flips, len(good)/step, aside, named, lost)
	if aside == 0 || named == 0 && !testing.Short() { // a short run may miss all resources
		t.Error("the flips have hit nothing")
	}
}
