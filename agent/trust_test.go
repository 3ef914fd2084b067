package agent_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

func trustKey(name string) sign.Signer {
	seed := sha256.Sum256([]byte(name))
	return sign.Key(ed25519.NewKeyFromSeed(seed[:]))
}

// trustOf returns the trust of an agent.
func trustOf(t *testing.T, r *agenttest.Running) *api.Trust {
	t.Helper()
	got, err := r.Api().Trust(t.Context())
	agenttest.Do(t, err)
	return got
}

// trustFile returns a trust file of the root "root" that gives the operator "alice" and some nodes
// all rights.
func trustFile(t *testing.T, version int, mode string, nodes ...api.TrustNode) []byte {
	t.Helper()
	text := fmt.Sprintf("cluster: default\nversion: %d\nmode: %s\nthreshold: 1\nroots:\n- {name: root, key: %s}\n"+
		"roles:\n- {name: operator, kinds: [\"*\"], verbs: [\"*\"]}\nkeys:\n- {name: alice, key: %s, role: operator}\n",
		version, mode, trust.PublicKey(trustKey("root").Public()), trust.PublicKey(trustKey("alice").Public()))
	for i, n := range nodes {
		if i == 0 {
			text += "nodes:\n"
		}
		text += fmt.Sprintf("- {name: %s, key: %s, role: operator}\n", n.Name, n.ID)
	}
	e := &trust.Envelope{Document: []byte(text)}
	agenttest.Do(t, e.Sign(trustKey("root")))
	return e.Encode()
}

// publishTrust sends a trust file over the API of an agent, and waits until some agents have it.
func publishTrust(t *testing.T, by *agenttest.Running, file []byte, all ...*agenttest.Running) {
	t.Helper()
	writeSigned(t, by, "root", engine.Put{Key: engine.Key{Kind: trust.KindFile, Name: trust.FileName},
		MediaType: trust.MediaFile, Body: file})
	for _, r := range all {
		agenttest.Eventually(t, r.Config().Node.Name+" has the trust file", func() bool {
			got := trustOf(t, r)
			return got.File != nil && got.File.Text == string(file)
		})
	}
}

func writeSigned(t *testing.T, by *agenttest.Running, key string, puts ...engine.Put) {
	t.Helper()
	_, err := by.Api().WriteSigned(t.Context(), trustKey(key), puts...)
	agenttest.Do(t, err)
}

// enrollAll enrolls nodes for services, with the root key.
func enrollAll(t *testing.T, by *agenttest.Running, services string, nodes ...api.TrustNode) {
	t.Helper()
	for _, n := range nodes {
		e := &trust.Enrollment{Name: n.Name, Services: []string{services}}
		agenttest.Do(t, e.Key.UnmarshalText([]byte(n.ID)))
		body, err := e.Encode()
		agenttest.Do(t, err)
		writeSigned(t, by, "root", engine.Put{Key: engine.Key{Kind: trust.KindEnrollment, Name: n.ID},
			MediaType: trust.MediaEnrollment, Body: body})
	}
}

// nodeOf returns a node as an agent sees it.
func nodeOf(t *testing.T, r *agenttest.Running, name string) (out api.TrustNode) {
	t.Helper()
	agenttest.Eventually(t, "the trust of "+r.Config().Node.Name+" lists node "+name, func() bool {
		for _, n := range trustOf(t, r).Nodes {
			if n.Name == name && n.Signed {
				out = n
				return true
			}
		}
		return false
	})
	return out
}

// TestTrustModes moves two running agents from off over warn to enforce and back. A node without a
// role writes as before in off and warn, is listed in warn, and in enforce its API refuses the
// write and its earlier record is not in force on the other node.
func TestTrustModes(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	agenttest.Apply(t, b.Agent, timeoutText("slow", "20s")+"---\n"+agenttest.DataplaneText("default", "web", "10.0.0.2"))
	has(t, a, poolTimeout, "gossip:b")
	has(t, a, poolWeb, "peer:b")
	na, nb := nodeOf(t, a, "a"), nodeOf(t, a, "b")

	publishTrust(t, a, trustFile(t, 1, trust.ModeOff, na), a, b)
	enrollAll(t, a, "*", na, nb)
	if got := trustOf(t, a); got.Mode != trust.ModeOff || got.Total != 0 {
		t.Errorf("off: %+v", got)
	}

	publishTrust(t, b, trustFile(t, 2, trust.ModeWarn, na), a, b)
	agenttest.Apply(t, b.Agent, timeoutText("slow", "30s"))
	agenttest.Eventually(t, "a lists the record of b", func() bool {
		got := trustOf(t, a)
		return got.Total == 1 && got.Refused[0].Name == "slow" && strings.Contains(got.Refused[0].Reason, "grants no role")
	})
	agenttest.Eventually(t, "the check says so", func() bool {
		return strings.Contains(trustCheck(t, a), "1 item of the pool is in force, and would not be")
	})
	has(t, a, poolTimeout, "gossip:b")

	publishTrust(t, a, trustFile(t, 3, trust.ModeEnforce, na), a, b)
	has(t, a, poolTimeout, "")
	has(t, b, poolTimeout, "")
	has(t, a, poolMesh, "api")
	has(t, b, poolMesh, "gossip:a")
	has(t, a, poolWeb, "peer:b")
	if code, body := b.Request("PUT", "http://nearside/meshes/default/meshtimeouts/slow",
		timeoutText("slow", "40s")); code != api.StatusUntrusted || !strings.Contains(body, "grants no role to this node") ||
		!strings.Contains(body, "--sign KEY") {
		t.Errorf("a write of a node without a role: %d %s", code, body)
	}
	agenttest.Apply(t, a.Agent, timeoutText("other", "40s"))
	other := poolTimeout
	other.Name = "other"
	has(t, b, other, "gossip:a")
	if code, body := b.Request("DELETE", "http://nearside/meshes/default/meshtimeouts/other",
		""); code != api.StatusUntrusted {
		t.Errorf("a deletion by a node without a role: %d %s", code, body)
	}

	publishTrust(t, a, trustFile(t, 4, trust.ModeEnforce, na, nb), a, b)
	agenttest.Eventually(t, "the record of b is in force again", func() bool {
		_, ok := a.Store().Snapshot().Get(poolTimeout)
		return ok
	})
	publishTrust(t, a, trustFile(t, 5, trust.ModeOff), a, b)
	agenttest.Apply(t, b.Agent, timeoutText("slow", "50s"))
	has(t, a, poolTimeout, "gossip:b")
}

// trustCheck returns the reason of the check of trust.
func trustCheck(t *testing.T, r *agenttest.Running) string {
	t.Helper()
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	for _, c := range s.Checks {
		if c.Name == "pool-trust" {
			return c.Reason
		}
	}
	return ""
}

// TestEnrollmentLimits checks that in enforce a node serves only the services of its enrollment,
// that a member without an enrollment serves nothing, and that it does after its enrollment.
func TestEnrollmentLimits(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	b := pooled(t, agenttest.ShortDir(t), "b", a.Addrs().Gossip.String())
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	agenttest.Apply(t, b.Agent, agenttest.DataplaneText("default", "web", "10.0.0.2")+"---\n"+
		agenttest.DataplaneText("default", "db", "10.0.0.3"))
	has(t, a, poolWeb, "peer:b")
	na, nb := nodeOf(t, a, "a"), nodeOf(t, a, "b")
	publishTrust(t, a, trustFile(t, 1, trust.ModeOff, na), a, b)
	enrollAll(t, a, "*", na)
	publishTrust(t, a, trustFile(t, 2, trust.ModeEnforce, na), a, b)
	has(t, a, poolWeb, "")
	agenttest.Eventually(t, "a says why it refuses b", func() bool {
		n := nodeOf(t, a, "b") // which signs its data
		return !n.Enrolled && strings.Contains(n.Reason, "enroll")
	})
	enrollAll(t, a, "web", nb)
	has(t, a, poolWeb, "peer:b")
	db := poolWeb
	db.Name = "db"
	has(t, a, db, "")
	agenttest.Eventually(t, "a lists the dataplane beyond the enrollment", func() bool {
		for _, r := range trustOf(t, a).Refused {
			if r.Type == "Dataplane" && r.Name == "db" && strings.Contains(r.Reason, "does not allow the service db") {
				return true
			}
		}
		return false
	})
}

// TestTrustAnchor checks a node whose config enforces trust: it accepts nothing from a pool before
// its operator gives it the trust file.
func TestTrustAnchor(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n")
	na := nodeOf(t, a, "a")
	file := trustFile(t, 1, trust.ModeOff, na)
	publishTrust(t, a, file, a)
	enrollAll(t, a, "*", na)

	dir := agenttest.ShortDir(t)
	b := pooled(t, dir, "b", a.Addrs().Gossip.String(), "trust.mode=enforce")
	if got := trustCheck(t, b); !strings.Contains(got, "has no trust file, so it accepts nothing") {
		t.Errorf("check without a trust file: %s", got)
	}
	has(t, b, poolMesh, "")
	agenttest.Do(t, b.Api().AnchorTrust(t.Context(), file))
	has(t, b, poolMesh, "gossip:a")
	agenttest.Do(t, b.Stop())

	// A damaged trust file is not taken for none.
	path := filepath.Join(dir, "state", "trust.pin")
	saved, err := os.ReadFile(path)
	agenttest.Do(t, err)
	agenttest.WriteSecret(t, path, string(saved[:len(saved)/2]))
	b = pooled(t, dir, "b", a.Addrs().Gossip.String(), "trust.mode=enforce")
	if got := trustCheck(t, b); !strings.Contains(got, "cannot be read") {
		t.Errorf("check with a damaged trust file: %s", got)
	}
	has(t, b, poolMesh, "gossip:a")
}

// TestTrustRecords checks that the API returns records for signing them again, but none that may
// contain a secret.
func TestTrustRecords(t *testing.T) {
	t.Parallel()
	a := pooled(t, agenttest.ShortDir(t), "a", "")
	agenttest.Apply(t, a.Agent, "type: Mesh\nname: default\n---\n"+timeoutText("slow", "20s")+
		"---\ntype: Mesh\nname: held\nmtls:\n  enabledBackend: own\n  backends:\n  - name: own\n    type: provided\n"+
		"    conf: {cert: {inline: Y2VydA==}, key: {inline: c2VjcmV0LWtleQ==}}\n")
	got, err := a.Api().TrustRecords(t.Context(), "")
	agenttest.Do(t, err)
	has := map[string]bool{}
	for _, x := range got.Items {
		has[x.Ref.String()] = x.Record != ""
	}
	if len(has) != 3 || !has["MeshTimeout/default/slow"] || !has["Mesh/default"] || has["Mesh/held"] {
		t.Errorf("records in their encoded form: %v", has)
	}
}
