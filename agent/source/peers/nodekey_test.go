package peers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

func identity(t *testing.T, dir string) peers.Identity {
	t.Helper()
	id, err := peers.OpenIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id.Node != engine.NodeID(sign.Fingerprint(id.Signer.Public())) {
		t.Errorf("the ID %s is not the fingerprint of the key", id.Node)
	}
	return id
}

func write(t *testing.T, mode os.FileMode, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestNodeKey checks that a node has one key, which only its user can read.
func TestNodeKey(t *testing.T) {
	dir := t.TempDir()
	first := identity(t, dir)
	if st, err := os.Stat(filepath.Join(dir, "node-key")); err != nil || st.Mode() != 0o600 || !first.Fresh {
		t.Errorf("%v, %v, fresh %v", st, err, first.Fresh)
	}
	if second := identity(t, dir); second.Node != first.Node || second.Fresh || len(second.Former) > 0 {
		t.Errorf("the second start has %+v", second)
	}
	if _, err := peers.OpenIdentity(filepath.Join(dir, "missing")); err == nil {
		t.Error("a key without a directory")
	}
}

// TestUnusableNodeKey checks that a key that cannot be used is an error, and that its file does not
// change.
func TestUnusableNodeKey(t *testing.T) {
	valid := t.TempDir()
	identity(t, valid)
	key, err := os.ReadFile(filepath.Join(valid, "node-key"))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, _ := x509.MarshalPKCS8PrivateKey(other)
	for name, c := range map[string]struct {
		mode os.FileMode
		text string
		want string
	}{
		"empty":            {0o600, "", "is damaged"},
		"truncated":        {0o600, string(key[:len(key)/2]), "is damaged"},
		"text":             {0o600, "key", "is damaged"},
		"of another kind":  {0o600, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "ed25519"},
		"a public key":     {0o600, strings.ReplaceAll(string(key), "PRIVATE", "PUBLIC"), "is damaged"},
		"read by a group":  {0o640, string(key), "accessible to other users"},
		"written by users": {0o602, string(key), "accessible to other users"},
	} {
		for _, file := range []string{"node-key", "node-key.former"} {
			dir := t.TempDir()
			if file != "node-key" {
				identity(t, dir)
			}
			path := filepath.Join(dir, file)
			write(t, c.mode, path, c.text)
			if _, err := peers.OpenIdentity(dir); err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("%s is %s: %v", file, name, err)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != c.text {
				t.Errorf("%s is %s: it was changed (%v)", file, name, err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "node-key"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := peers.OpenIdentity(dir); err == nil {
		t.Error("a directory is a key")
	}
}

// TestFormerIdentities checks the files of an upgrade, of a replaced key, and of a copied state, in
// each state in which the agent can be killed.
func TestFormerIdentities(t *testing.T) {
	const former = "0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	write(t, 0o600, filepath.Join(dir, "node-id"), former+"\n")
	id := identity(t, dir)
	for range 2 { // killed after the key was created
		if second := identity(t, dir); second.Node != id.Node || second.Fresh || len(second.Former) != 1 ||
			second.Former[0].Node.String() != former || second.Former[0].Signer != nil {
			t.Fatalf("identity %+v", second)
		}
	}
	identity(t, dir).Former[0].Retired()
	if after := identity(t, dir); after.Node != id.Node || len(after.Former) > 0 {
		t.Errorf("after the retirement: %+v", after)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "node-id.retired")); err != nil || string(b) != former+"\n" {
		t.Errorf("%q, %v", b, err)
	}
	write(t, 0o600, filepath.Join(dir, "node-id"), "x")
	if _, err := peers.OpenIdentity(dir); err == nil || !strings.Contains(err.Error(), "node-id") {
		t.Errorf("a damaged file of the former ID: %v", err)
	}

	// A replaced key, during an upgrade.
	write(t, 0o600, filepath.Join(dir, "node-id"), former)
	if err := os.Rename(filepath.Join(dir, "node-key"), filepath.Join(dir, "node-key.former")); err != nil {
		t.Fatal(err)
	}
	next := identity(t, dir)
	if next.Node == id.Node || len(next.Former) != 2 || next.Former[0].Node != id.Node || next.Former[0].Signer == nil {
		t.Errorf("after the key was replaced: %+v", next)
	}

	// The copy of a state has no former identity.
	copied, err := peers.NewIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if now := identity(t, dir); copied.Node == next.Node || now.Node != copied.Node || len(now.Former) > 0 {
		t.Errorf("the copy has %+v", now)
	}
}
