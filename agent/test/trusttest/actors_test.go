package trusttest_test

import (
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
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
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
