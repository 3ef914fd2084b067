package trusttest_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// nodeKey returns the key of an agent's node, as a thief with access to its disk has it.
func (s *scene) nodeKey(name string) ed25519.PrivateKey {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir[name], "state", "node-key"))
	agenttest.Do(s.t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	agenttest.Do(s.t, err)
	return key.(ed25519.PrivateKey)
}

// insiders are attacks with keys that the trust file or an enrollment names. They change nothing
// beyond the permissions of the keys, here: nothing.
var insiders = []attack{
	{"an operator without a role for the kind", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now(), s.keyOf("eve")))
	}},
	{"an operator whose key has expired", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now(), s.keyOf("past")))
	}},
	{"an operator dates a record in 20 years", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now().Add(years), s.keyOf("alice")))
	}},
	{"a record of an operator of last month, whose deletion may have expired", false, func(s *scene, h *hostile) {
		r := record{key: engineKey("MeshTimeout", "default", "deleted"), hlc: at(time.Now().Add(-31 * 24 * time.Hour)),
			body: bodyOf(s.t, timeoutText("deleted", "44s")), cluster: cluster, by: s.keyOf("alice")}
		s.records(h, r)
	}},
	{"an operator writes in a later era", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), s.keyOf("alice"))
		r.hlc = inEra(r.hlc, 1)
		s.records(h, r)
	}},
	{"an operator of another cluster", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), s.keyOf("alice"))
		r.cluster = "east"
		s.records(h, r)
	}},
	{"a root key signs a resource", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now(), s.keyOf("r1")))
	}},
	{"a record of an operator that another one signs", false, func(s *scene, h *hostile) {
		r := s.allow(time.Now(), s.keyOf("eve"))
		r.claims, r.author = s.keyOf("alice"), "alice"
		s.records(h, r)
		c := r.content()
		forged := append([]byte(nil), signature(s.keyOf("eve"), "nearside record signature", c)...)
		copy(forged, s.keyOf("alice").Public().(ed25519.PublicKey))
		s.flood(h, message{records: [][]byte{envelope(c, forged)}})
	}},
	{"an operator enrolls a node without the permission", false, func(s *scene, h *hostile) {
		s.records(h, enrollment(h.meta.node, h.meta.name, s.keyOf("alice")))
		s.records(h, enrollment(h.meta.node, h.meta.name, s.nodeKey("a")))
	}},
	{"a stolen node key without a role for the kind", false, func(s *scene, h *hostile) {
		s.records(h, s.allow(time.Now(), s.nodeKey("b")))
	}},
	{"a stolen node key signs for another node", false, func(s *scene, h *hostile) {
		m := s.foreign(s.nodeKey("b"))
		s.manifests(h, m)
		m.leaving, m.items = true, nil
		s.manifests(h, m)
		m.leaving, m.forgotten = false, true
		s.manifests(h, m)
		for i := range uint64(6) {
			m.epoch = uint64(time.Now().Unix()) + 23*3600 + i
			s.manifests(h, m)
		}
	}},
	{"a stolen node key publishes a directory", false, func(s *scene, h *hostile) {
		s.manifests(h, directory(s.nodeKey("b"), uint64(time.Now().Unix())<<8+1))
	}},
	{"a stolen node key takes the name of another node", false, func(s *scene, h *hostile) {
		m := s.foreign(s.nodeKey("b"))
		m.node, m.items = s.b.id, nil
		m.epoch -= 50
		s.manifests(h, m)
	}},
	{"an earlier trust file", false, func(s *scene, h *hostile) {
		s.records(h, trustRecord(s.trustText(1, trust.ModeOff, nil, "r1"), s.keyOf("r1")))
	}},
	{"another trust file with the same version", false, func(s *scene, h *hostile) {
		s.records(h, trustRecord(s.trustText(2, trust.ModeOff, nil, "r2"), s.keyOf("r2")))
	}},
	{"a trust file of another cluster", false, func(s *scene, h *hostile) {
		s.records(h, trustRecord(s.trustText(9, trust.ModeOff, func(f *trust.File) { f.Cluster = "east" }, "r1"),
			s.keyOf("r1")))
	}},
	{"a trust file without a signature of a root", false, func(s *scene, h *hostile) {
		for _, by := range []ed25519.PrivateKey{nil, h.meta.key, s.keyOf("alice"), s.keyOf("r1")} {
			s.records(h, trustRecord(s.trustText(9, trust.ModeOff, nil), by))
			s.records(h, trustRecord(s.trustText(9, trust.ModeOff, nil, "alice", "mallory"), by))
		}
		own := func(f *trust.File) { f.Roots = []trust.Root{{Name: "m", Key: s.public("mallory")}} }
		s.records(h, trustRecord(s.trustText(9, trust.ModeOff, own, "mallory"), s.keyOf("mallory")))
	}},
	{"a trust file that another key dates", false, func(s *scene, h *hostile) {
		s.records(h, trustRecord(s.trustText(9, trust.ModeOff, nil, "r1"), s.keyOf("alice")))
	}},
	{"a damaged trust file", false, func(s *scene, h *hostile) {
		text := s.trustText(9, trust.ModeOff, nil, "r1")
		s.records(h, trustRecord(text[:len(text)/2], s.keyOf("r1")),
			trustRecord(strings.Replace(text, "admin", "nimda", 1), s.keyOf("r1")))
	}},
	{"the trust file is deleted", false, func(s *scene, h *hostile) {
		for _, by := range []string{"alice", "r1"} {
			s.records(h, record{key: engineKey("TrustFile", "", "trust"), hlc: at(time.Now()), deleted: true,
				cluster: cluster, by: s.keyOf(by)})
		}
	}},
	{"the enrollment of a node is deleted", false, func(s *scene, h *hostile) {
		for _, by := range []ed25519.PrivateKey{nil, h.meta.key, s.keyOf("alice"), s.nodeKey("b")} {
			s.records(h, record{key: engineKey("NodeEnrollment", "", s.a.id.String()), hlc: at(time.Now()), deleted: true,
				cluster: cluster, by: by})
		}
	}},
	{"a heal statement", false, func(s *scene, h *hostile) {
		for _, by := range []ed25519.PrivateKey{nil, h.meta.key, s.keyOf("alice"), s.nodeKey("a")} {
			s.records(h, healing(1, by, s.a.id), healing(63, by, s.a.id))
		}
	}},
}

// healing returns a statement that begins an era and evicts a node.
func healing(era uint64, by ed25519.PrivateKey, evicted engine.NodeID) record {
	body := appendNumber(nil, 1, era)
	body = appendNumber(body, 2, uint64(time.Now().UnixMilli()))
	body = appendBytes(body, 3, evicted[:])
	return record{key: engineKey("PoolHeal", "", string([]byte{'0' + byte(era/10), '0' + byte(era%10)})),
		hlc: at(time.Now()), body: string(body), cluster: cluster, by: by}
}

// TestStolenOperatorKey checks that the records of a stolen key are in force until the key is
// revoked, and that a revocation voids all of them except those that it keeps.
func TestStolenOperatorKey(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.enforce()
	h := join(t, s.a.addr(), member("mallory"))
	good := record{key: engineKey("MeshTimeout", "default", "good"), hlc: at(time.Now().Add(-time.Minute)),
		body: bodyOf(t, timeoutText("good", "41s")), origin: "op", cluster: cluster, by: s.keyOf("alice")}
	s.records(h, good)
	s.has(s.a, timeoutKey("good"), "gossip:op")
	s.has(s.b, timeoutKey("good"), "gossip:op")
	s.awaitRest()
	before := s.a.list() + s.b.list()

	stolen := s.allow(time.Now(), s.keyOf("alice"))
	backdated := good
	backdated.key, backdated.hlc = engineKey("MeshTimeout", "default", "past"), at(time.Now().Add(-time.Hour))
	backdated.body = bodyOf(t, timeoutText("past", "42s"))
	s.records(h, stolen, backdated)
	s.has(s.b, timeoutKey("past"), "gossip:op")
	if difference(before, s.a.list()+s.b.list()) == "" {
		t.Fatal("the stolen key changes nothing")
	}
	kept, err := engine.DecodeRecord(good.encode())
	agenttest.Do(t, err)
	ids := []string{trust.RecordID(kept)}
	s.records(h, trustRecord(s.trustText(3, trust.ModeEnforce, func(f *trust.File) {
		f.Revoked = []trust.Revocation{{Name: "alice", Key: s.public("alice").ID(), Since: time.Now().Add(-time.Minute),
			Keep: &ids}}
	}, "r1"), s.keyOf("r1")))
	s.agree("the revocation", func(x api.Trust) bool { return x.File.Version == 3 })
	for _, x := range []*honest{s.a, s.b} {
		s.has(x, timeoutKey("past"), "")
		s.has(x, timeoutKey("good"), "gossip:op")
		s.has(x, permissionKey, "")
	}
	s.records(h, s.allow(time.Now(), s.keyOf("alice")), s.allow(time.Now().Add(-time.Hour), s.keyOf("alice")))
	s.works()
	s.has(s.b, permissionKey, "")
	s.write(s.a, meshText)
	s.has(s.b, permissionKey, "gossip:a")
	if out := difference(before, s.a.list()+s.b.list()); out != "" {
		t.Errorf("after the revocation, and a new apply of the policy:\n%s", out)
	}
}

// bodyOf returns the body of the record of a resource.
func bodyOf(t testing.TB, text string) string {
	t.Helper()
	b, err := resource.Marshal(agenttest.Decoded(t, text)[0])
	agenttest.Do(t, err)
	return string(b)
}

// timeoutKey returns the key of a MeshTimeout.
func timeoutKey(name string) resource.Key {
	return resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}
}
