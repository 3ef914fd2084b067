package trusttest_test

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// years is far in the future.
const years = 20 * 365 * 24 * time.Hour

// allowBody allows everything that the policy of the pool denies.
const allowBody = `{"type":"MeshTrafficPermission","mesh":"default","name":"nobody","spec":{"targetRef":{"kind":"Mesh"},` +
	`"from":[{"targetRef":{"kind":"Mesh"},"default":{"action":"Allow"}}]}}`

// backBody is the proxy back at a foreign address.
const backBody = `{"type":"Dataplane","mesh":"default","name":"back","networking":{"address":"192.0.2.66",` +
	`"inbound":[{"port":80,"tags":{"kuma.io/service":"back"}}]}}`

// engineKey returns a key of the pool.
func engineKey(kind, mesh, name string) engine.Key {
	return engine.Key{Kind: kind, Mesh: mesh, Name: name}
}

var permission = engineKey("MeshTrafficPermission", "default", "nobody")

// allow returns a record that allows everything.
func (s *scene) allow(date time.Time, by ed25519.PrivateKey) record {
	return record{key: permission, hlc: at(date), writer: s.a.id, body: allowBody, author: "root", origin: "a",
		cluster: cluster, by: by, lineage: []engine.Ancestor{{HLC: 1, Short: 1}}}
}

// foreign returns a manifest of agent a whose proxy is at a foreign address.
func (s *scene) foreign(by ed25519.PrivateKey) manifest {
	return manifest{node: s.a.id, name: "a", epoch: uint64(time.Now().Unix()) + 100, cluster: cluster, by: by,
		items: []engine.OwnItem{{Key: engineKey("Dataplane", "default", "back"), Body: []byte(backBody)}}}
}

// attack is one try of a hostile member with the gossip key to change something on other nodes.
type attack struct {
	name string
	// open says that the attack changes something where trust.mode is off. In enforce, none does.
	open bool
	do   func(s *scene, h *hostile)
}

// records sends records to both agents.
func (s *scene) records(h *hostile, list ...record) {
	s.t.Helper()
	var m message
	for _, r := range list {
		m.records = append(m.records, r.encode())
	}
	s.flood(h, m)
}

// flood sends a message to both agents. If they use the member, they have processed it at the end.
func (s *scene) flood(h *hostile, m message) {
	s.t.Helper()
	for _, x := range []*honest{s.a, s.b} {
		if s.enforced {
			h.send(x.addr(), m)
		} else {
			h.ask(x.addr(), m, 100*time.Millisecond)
		}
	}
}

// manifests sends manifests to both agents, each with its bodies.
func (s *scene) manifests(h *hostile, list ...manifest) {
	s.t.Helper()
	for _, m := range list {
		s.flood(h, m.message())
	}
}

// attacks are those that need no time.
var attacks = []attack{
	{"an unsigned record", true, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now(), nil))
	}},
	{"a record that a foreign key signs", true, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), h.meta.key)
		r.body = strings.Replace(allowBody, `"Allow"`, `"AllowWithShadowDeny"`, 1)
		s.records(h, r)
	}},
	{"a record dated in 20 years", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now().Add(years), nil), s.allow(time.Now().Add(years), h.meta.key))
	}},
	{"a record of a later era", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), h.meta.key)
		r.hlc = inEra(r.hlc, 7)
		s.records(h, r)
	}},
	{"a record with the signature of another content", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), h.meta.key)
		other := s.allow(time.Now().Add(-time.Hour), h.meta.key)
		c := r.content()
		s.flood(h,
			message{records: [][]byte{envelope(c, signature(h.meta.key, "nearside record signature", other.content()))}})
		s.flood(h, message{records: [][]byte{envelope(c, signature(h.meta.key, "nearside manifest signature", c))}})
		s.flood(h, message{records: [][]byte{envelope(c, nil)}})
	}},
	{"a record that names another signer", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), h.meta.key)
		r.claims = s.keyOf("a")
		s.records(h, r)
	}},
	{"a truncated record", false, func(s *scene, h *hostile) {
		b := message{records: [][]byte{s.allow(time.Now(), h.meta.key).encode()}}.encode()
		for _, x := range []*honest{s.a, s.b} {
			for n := 0; n < len(b); n += 7 {
				h.sendBytes(x.addr(), b[:n])
			}
		}
	}},
	{"a manifest of another node without a signature", false, func(s *scene, h *hostile) {
		s.manifests(h, s.foreign(nil))
	}},
	{"a manifest of another node that a foreign key signs", false, func(s *scene, h *hostile) {
		s.manifests(h, s.foreign(h.meta.key))
	}},
	{"an empty manifest of another node, at each of its epochs", false, func(s *scene, h *hostile) {
		for i := range uint64(6) {
			for _, key := range []ed25519.PrivateKey{nil, h.meta.key} {
				s.manifests(h, manifest{node: s.a.id, name: "a", epoch: uint64(time.Now().Unix()) + 1000 + i, cluster: cluster,
					by: key})
			}
		}
	}},
	{"another node leaves", false, func(s *scene, h *hostile) {
		m := s.foreign(h.meta.key)
		m.leaving, m.items = true, nil
		s.manifests(h, m)
		m.by = nil
		s.manifests(h, m)
	}},
	{"another node is forgotten, far in the future", false, func(s *scene, h *hostile) {
		for i := range uint64(6) {
			for _, key := range []ed25519.PrivateKey{nil, h.meta.key} {
				s.manifests(h, manifest{node: s.a.id, name: "a", epoch: uint64(time.Now().Unix()) + 366*24*3600 - 3 + i,
					cluster: cluster, forgotten: true, by: key})
			}
		}
	}},
	{"another CA", true, func(s *scene, h *hostile) {
		s.manifests(h, manifest{node: h.meta.node, name: h.meta.name, epoch: uint64(time.Now().Unix()), cluster: cluster,
			by: h.meta.key, items: []engine.OwnItem{authority(s.t)}})
	}},
	{"a proxy of another service", true, func(s *scene, h *hostile) {
		s.manifests(h, manifest{node: h.meta.node, name: h.meta.name, epoch: uint64(time.Now().Unix()) + 1, cluster: cluster,
			by: h.meta.key, items: []engine.OwnItem{{Key: engineKey("Dataplane", "default", "another"),
				Body: []byte(strings.Replace(backBody, `"name":"back"`, `"name":"another"`, 1))}}})
	}},
	{"the name of another node", false, func(s *scene, h *hostile) {
		key, id := newKey()
		join(s.t, s.a.addr(), metadata{key: key, node: id, name: "a"})
		join(s.t, s.b.addr(), metadata{node: engine.NodeID{9, 9}, name: "a"})
		for _, m := range []manifest{{node: id, by: key}, {node: engine.NodeID{9, 9}}} {
			m.name, m.epoch, m.cluster = "a", uint64(time.Now().Unix()), cluster
			m.items = []engine.OwnItem{{Key: engineKey("Dataplane", "default", "named"),
				Body: []byte(strings.Replace(backBody, `"name":"back"`, `"name":"named"`, 1))}}
			s.manifests(h, m)
		}
	}},
	{"a published directory", true, func(s *scene, h *hostile) {
		s.manifests(h, directory(h.meta.key, uint64(time.Now().Unix())<<8))
	}},
	{"the death of another node", false, func(s *scene, h *hostile) {
		for _, name := range h.members() {
			for i := range uint32(3) {
				h.dead(s.b.addr(), name, name, 100*i)
				h.dead(s.a.addr(), name, "x", 100*i)
			}
		}
	}},
	{"the metadata of another node at a foreign address", false, func(s *scene, h *hostile) {
		for name, meta := range h.metadata() {
			for _, x := range []*honest{s.a, s.b} {
				h.alive(x.addr(), name, h.over.addr(), 1000, meta)
			}
		}
	}},
	{"a tombstone of the mesh", false, func(s *scene, h *hostile) {
		for _, by := range []ed25519.PrivateKey{nil, h.meta.key, s.keyOf("alice")} {
			s.records(h, record{key: engineKey("Mesh", "", "default"), hlc: at(time.Now()), writer: s.a.id, deleted: true,
				cluster: cluster, by: by, lineage: []engine.Ancestor{{HLC: 1, Short: 1}}})
		}
	}},
	{"all messages of the pool, replayed", false, func(s *scene, h *hostile) {
		for _, b := range h.recorded() {
			for _, x := range []*honest{s.a, s.b} {
				h.sendBytes(x.addr(), b)
			}
		}
	}},
	{"an enrollment", false, func(s *scene, h *hostile) {
		s.records(h, enrollment(h.meta.node, h.meta.name, h.meta.key))
		s.records(h, enrollment(h.meta.node, h.meta.name, nil))
	}},
}

// outcome runs an attack, and returns the changes of the view of both agents.
func (s *scene) outcome(h *hostile, x *attack) string {
	s.t.Helper()
	before := s.view()
	x.do(s, h)
	s.works()
	return s.changes(before, x.open)
}

// changes returns the changes of the view of both agents since before. If none are expected, they
// may disappear within a minute: liveness may need a second to recover.
func (s *scene) changes(before string, expected bool) (out string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	await(ctx, func() bool {
		out = difference(before, s.view())
		return (out != "") == expected
	})
	return out
}

// TestAttacksWithoutTrust checks that where trust is off, a member changes only what every member
// may change. The attacks that succeed here show that their messages are valid.
func TestAttacksWithoutTrust(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	h := join(t, s.a.addr(), member("mallory"))
	for _, x := range attacks {
		t.Run(x.name, func(t *testing.T) {
			s.t = t
			if out := s.outcome(h, &x); (out != "") != x.open {
				t.Errorf("it changes something: %t, want %t:\n%s", out != "", x.open, out)
			}
		})
	}
	s.t = t
}

// TestAttacksOnEnforcingPool checks that where trust is enforced, a member with the gossip key
// changes nothing, and a key changes nothing beyond its permissions. A restart changes nothing too.
func TestAttacksOnEnforcingPool(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.enforce()
	h := join(t, s.a.addr(), member("mallory"))
	for _, x := range append(attacks, insiders...) {
		t.Run(x.name, func(t *testing.T) {
			s.t = t
			x.open = false
			if out := s.outcome(h, &x); out != "" {
				t.Errorf("it changes:\n%s", out)
			}
		})
	}
	records := 1000 // 60 MiB
	if testing.Short() {
		records = 100
	}
	t.Run("floods", func(t *testing.T) {
		s.t = t
		s.floods(t, h, records)
	})
	s.t = t
	before := s.view()
	s.restart()
	s.works()
	s.awaitRest()
	if out := s.changes(before, false); out != "" && !t.Failed() {
		t.Errorf("a restart of both agents changes:\n%s", out)
	}
}

// restart restarts both agents, one after the other, at their addresses.
func (s *scene) restart() {
	s.t.Helper()
	for _, x := range []**honest{&s.a, &s.b} {
		old, seed := *x, s.a.addr()
		if old == s.a {
			seed = s.b.addr()
		}
		agenttest.Do(s.t, old.Stop())
		*x = start(s.t, s.dir[old.name], old.name, seed.String(), old.set...)
	}
}
