package ads_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// servedAndGone connects a client that accepts a listener, optionally rejects its second form, and
// disconnects. It returns a weak pointer to the first form and the client's versions.
func servedAndGone(t *testing.T, m *inMemory,
	rejects bool) (w weak.Pointer[draft.Resource], versions map[string]string) {
	c, got, end := m.connect()
	cfg := config("LDS:a=1", "LDS:b=1")
	w, versions = weak.Make(draft.Find(cfg.Resources[draft.RankListener], "a")), versionsOf(cfg, lds)
	m.pass(cfg)
	c.ack(one(t, got, "LDS a=1 b=1"))
	synctest.Wait()
	if rejects {
		m.pass(config("LDS:a=2", "LDS:b=1"))
		c.nack(one(t, got, "LDS a=2"), "a: no")
		synctest.Wait()
	}
	leave(c, end)
	return w, versions
}

func inMemoryStill(w weak.Pointer[draft.Resource]) bool {
	for range 3 {
		runtime.GC() // two collections empty the sync.Pool in which gRPC retains memory
	}
	return w.Value() != nil
}

// TestGoneClients: the server forgets a disconnected client's resources after a minute, without any
// other event. Before and after that, a client that reconnects receives the difference.
func TestGoneClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forgot := 0
		m := startInMemory(t, options{Forgot: func() { forgot++ }})
		a, versions := servedAndGone(t, m, false)
		time.Sleep(59 * time.Second)
		if !inMemoryStill(a) || forgot > 0 {
			t.Error("forgotten after less than a minute")
		}
		c, got, end := m.resume(versions)
		m.pass(config("LDS:a=1", "LDS:b=2"))
		c.ack(one(t, got, "LDS b=2"))
		leave(c, end)
		time.Sleep(time.Minute)
		synctest.Wait()
		if inMemoryStill(a) || forgot != 1 {
			t.Errorf("after a minute: remembered %t, Forgot called %d times", inMemoryStill(a), forgot)
		}
		c, got, end = m.resume(versions)
		m.pass(config("LDS:a=1", "LDS:b=3"))
		c.ack(one(t, got, "LDS b=3"))
		leave(c, end)
	})
}

// TestGoneClientWithRejection: if a client rejected a resource, the accepted form of that resource
// is remembered longer.
func TestGoneClientWithRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		a, _ := servedAndGone(t, m, true)
		time.Sleep(10 * time.Minute)
		if !inMemoryStill(a) {
			t.Fatal("the form that was accepted is forgotten")
		}
		c, got, end := m.connect() // it has no resources
		m.pass(config("LDS:a=2", "LDS:b=1"))
		one(t, got, "LDS a=1 b=1")
		leave(c, end)
	})
}

// TestShed: Shed forgets disconnected clients earlier, but not one whose stream has just ended.
func TestShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startInMemory(t, options{})
		a, _ := servedAndGone(t, m, false)
		time.Sleep(14 * time.Second)
		m.Shed()
		if !inMemoryStill(a) {
			t.Error("forgotten within 15 s")
		}
		time.Sleep(time.Second)
		m.Shed()
		if inMemoryStill(a) {
			t.Error("remembered after 15 s")
		}
	})
}

// TestRefusedNode: refusing a node ends its streams, unless the node is already served.
func TestRefusedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m := startInMemory(t, options{Registry: reg})
		_, _, end := m.connect()
		full := errors.New("no memory; raise the limit")
		refuse := func() {
			m.Publish(map[node.Key]rollout.Config{web: {Refused: full, LastStream: m.LastStream()}})
			synctest.Wait()
		}
		refuse()
		if err := <-end; status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != full.Error() {
			t.Errorf("the stream ended with %v", err)
		}
		if n := closedFor(t, reg, "memory"); n != 1 {
			t.Errorf("counted %v times", n)
		}
		c, got, end := m.connect()
		m.pass(config("LDS:a=1"))
		c.ack(one(t, got, "LDS a=1"))
		synctest.Wait()
		refuse()
		select {
		case err := <-end:
			t.Errorf("the stream of a node that is served ended with %v", err)
		default:
		}
		m.pass(config("LDS:a=2"))
		one(t, got, "LDS a=2")
		leave(c, end)
	})
}
