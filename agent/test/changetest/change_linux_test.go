package changetest_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestChanges makes random changes while HTTP, gRPC, WebSockets, and TCP flow through three Envoys.
// No request may fail. CHANGES_N is the number of changes (default 12), and CHANGES_SEED the seed
// (default 1).
func TestChanges(t *testing.T) {
	n, seed := number(t, "CHANGES_N", 12), uint64(number(t, "CHANGES_SEED", 1))
	g := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t)
	list := w.subjects()
	tls := list[0]
	w.put(nil, tls, tls.forms[0])
	w.applied("MeshTLS", "tls")
	x := w.start()
	x.await(t)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	pause := func() { // up to 0.5 s
		for range 1 + g.IntN(20) {
			<-tick.C
		}
	}
	w.put(x, tls, tls.forms[1])
	for range n - 1 {
		pause()
		s := list[g.IntN(len(list))]
		switch g.IntN(16) { // these change most
		case 0, 1:
			s = tls
		case 2:
			s = list[1] // the Mesh
		}
		w.put(x, s, s.next(g))
	}
	pause()
	if tls.current == "" {
		w.put(x, tls, tls.forms[0])
	}
	w.applied("MeshTLS", "tls")
	w.applied("Mesh", "default")
	x.stop()
	x.report(t)
}

func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number from 1 on", name, text)
	}
	return n
}
