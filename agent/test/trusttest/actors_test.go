package trusttest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// keyOf returns the key of a person. Equal names have equal keys.
func (s *scene) keyOf(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// authority returns an item with a new CA.
func authority(t testing.TB) engine.OwnItem {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"nearside"},
		OrganizationalUnit: []string{"ca"}, CommonName: "default"}, NotBefore: now,
		NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{{Scheme: "spiffe", Host: "default"}}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	agenttest.Do(t, err)
	a := identity.Authorities{Mesh: "default", Backend: "ca", Certificates: [][]byte{der}, Life: time.Hour}
	body, err := a.Encode()
	agenttest.Do(t, err)
	return engine.OwnItem{Key: engineKey("NodeCA", "default", "ca"), Body: body}
}

// directory returns a published directory with a policy.
func directory(by ed25519.PrivateKey, epoch uint64) manifest {
	const name = "evil"
	body, _ := json.Marshal(map[string]any{"digest": strings.Repeat("0", 32), "changed": time.Now()})
	return manifest{node: engine.NodeID(plainHash("", fmt.Appendf(nil, "nearside directory %q %q", cluster, name))),
		name: name, epoch: epoch,
		directory: true, cluster: cluster, by: by, items: []engine.OwnItem{
			{Key: engineKey("Directory", "", name), Body: body},
			{Key: engineKey("MeshTimeout", "default", "published"), Body: []byte(`{"type":"MeshTimeout","mesh":"default",` +
				`"name":"published","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},` +
				`"default":{"idleTimeout":"77s"}}]}}`)}}}
}

// enrollment returns a record that enrolls a node for everything.
func enrollment(id engine.NodeID, name string, by ed25519.PrivateKey) record {
	body, _ := json.Marshal(map[string]any{"key": id.String(), "name": name, "services": []string{"*"},
		"tags": map[string][]string{"*": {"*"}}})
	return record{key: engineKey("NodeEnrollment", "", id.String()), hlc: at(time.Now()), writer: id, body: string(body),
		cluster: cluster, by: by}
}

// trustText returns a trust file. Each of the signers signs it.
func (s *scene) trustText(version int, mode string, change func(*trust.File), signers ...string) string {
	s.t.Helper()
	f := trust.File{Cluster: cluster, Version: uint64(version), Mode: mode, Threshold: 1,
		Roots: []trust.Root{{Name: "r1", Key: s.public("r1")}, {Name: "r2", Key: s.public("r2")}},
		Roles: []trust.Role{
			{Name: "admin", Allow: access.Allow{Kinds: []string{"*"}, Verbs: []string{"*"}}},
			{Name: "logs", Allow: access.Allow{Kinds: []string{"MeshAccessLog"}, Verbs: []string{"*"}}},
			{Name: "canaries", Allow: access.Allow{Kinds: []string{"Mesh"}, Names: []string{canary + "-*"},
				Verbs: []string{"*"}}},
		},
		Keys: []trust.Key{{Name: "alice", Key: s.public("alice"), Role: "admin"},
			{Name: "eve", Key: s.public("eve"), Role: "logs"}, {Name: "past", Key: s.public("past"), Role: "admin",
				NotAfter: time.Now().Add(-time.Hour)}},
		Nodes: []trust.Node{{Name: "a", Key: trust.ID(s.a.id), Role: "admin"},
			{Name: "b", Key: trust.ID(s.b.id), Role: "canaries"}},
	}
	if change != nil {
		change(&f)
	}
	document, err := json.Marshal(f)
	agenttest.Do(s.t, err)
	e := trust.Envelope{Document: append(document, '\n')}
	for _, name := range signers {
		agenttest.Do(s.t, e.Sign(sign.Key(s.keyOf(name))))
	}
	return string(e.Encode())
}

func (s *scene) public(name string) trust.PublicKey {
	return trust.PublicKey(s.keyOf(name).Public().(ed25519.PublicKey))
}

// trustRecord returns a record with a trust file.
func trustRecord(text string, by ed25519.PrivateKey) record {
	return record{key: engineKey("TrustFile", "", "trust"), hlc: at(time.Now()), body: text, cluster: cluster, by: by}
}

// trustOf returns the trust of an agent.
func (h *honest) trustOf(t testing.TB) (out api.Trust) {
	t.Helper()
	_, body := h.Request("GET", "http://nearside/v1/trust", "")
	agenttest.Do(t, json.Unmarshal([]byte(body), &out))
	return out
}

// enforce enrolls both nodes, and publishes a trust file with the mode enforce. The operator sends
// records as any process with the gossip key can.
func (s *scene) enforce() {
	s.t.Helper()
	operator := join(s.t, netip.AddrPort{}, member("operator"))
	root := s.keyOf("r1")
	s.records(operator, trustRecord(s.trustText(1, trust.ModeOff, nil, "r1"), root))
	s.agree("the trust file", func(x api.Trust) bool { return x.File != nil && x.File.Version == 1 })
	s.records(operator, enrollment(s.a.id, "a", root), enrollment(s.b.id, "b", root))
	s.agree("the enrollments", func(x api.Trust) bool {
		n := 0
		for _, node := range x.Nodes {
			if node.Enrolled {
				n++
			}
		}
		return n == 2
	})
	s.records(operator, trustRecord(s.trustText(2, trust.ModeEnforce, nil, "r1"), root))
	s.agree("the mode", func(x api.Trust) bool { return x.Mode == trust.ModeEnforce })
	operator.leave()
	s.enforced = true
	s.works()
	s.awaitRest()
}

// agree waits until the trust of both agents has a property.
func (s *scene) agree(what string, holds func(api.Trust) bool) {
	s.t.Helper()
	for _, x := range []*honest{s.a, s.b} {
		ctx, cancel := context.WithTimeout(s.t.Context(), agenttest.Patience)
		defer cancel()
		if !await(ctx, func() bool { return holds(x.trustOf(s.t)) }) {
			s.t.Fatalf("agent %s: %s: %+v\n%s", x.name, what, x.trustOf(s.t), tail(x.Logs.String()))
		}
	}
}
