package signkey_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/nearside-mesh/nearside/agent/host/signkey"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

func private() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

// file writes a PEM file.
func file(t *testing.T, b *pem.Block, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, pem.EncodeToMemory(b), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func openSSH(t *testing.T, key any, passphrase string) *pem.Block {
	t.Helper()
	b, err := ssh.MarshalPrivateKey(key, "alice@laptop")
	if passphrase != "" {
		b, err = ssh.MarshalPrivateKeyWithPassphrase(key, "alice@laptop", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pkcs8(t *testing.T, key any) *pem.Block {
	t.Helper()
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "PRIVATE KEY", Bytes: b}
}

// check checks that a key signs like private.
func check(t *testing.T, k *signkey.Key, name string) {
	t.Helper()
	s, err := sign.Make(k, "domain", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := sign.Verify("domain", []byte("content"), s)
	if err != nil || !pub.Equal(private().Public()) || k.Name != name {
		t.Errorf("key %x with name %q, want name %q; %v", pub, k.Name, name, err)
	}
}

func TestFiles(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain, secret := openSSH(t, private(), ""), openSSH(t, private(), "sesame")
	ask := func(s string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(s), nil }
	}
	for _, c := range []struct {
		name string
		path string
		ask  func(string) ([]byte, error)
		key  string // name of the key
		want string // part of the error; "": none
	}{
		{"OpenSSH", file(t, plain, 0o600), nil, "alice@laptop", ""},
		{"PKCS#8", file(t, pkcs8(t, private()), 0o400), nil, "", ""},
		{"encrypted", file(t, secret, 0o600), ask("sesame"), "", ""},
		{"wrong passphrase", file(t, secret, 0o600), ask("wrong"), "", "cannot be read"},
		{"no terminal", file(t, secret, 0o600), nil, "", "ssh-agent:COMMENT"},
		{"readable by others", file(t, plain, 0o640), nil, "", "chmod 0600"},
		{"another type", file(t, openSSH(t, other, ""), 0o600), nil, "", "only ed25519 keys"},
		{"another type in PKCS#8", file(t, pkcs8(t, other), 0o600), nil, "", "only ed25519 keys"},
		{"a certificate", file(t, &pem.Block{Type: "CERTIFICATE"}, 0o600), nil, "", "OpenSSH or PKCS#8"},
		{"missing", filepath.Join(t.TempDir(), "none"), nil, "", "keys generate"},
		{"a directory", t.TempDir(), nil, "", "regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := signkey.Open(c.path, signkey.Options{Passphrase: c.ask})
			switch {
			case c.want == "" && err == nil:
				defer k.Close()
				check(t, k, c.key)
			case err == nil || c.want == "" || !strings.Contains(err.Error(), c.want):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// serveAgent starts an ssh-agent, and returns the path of its socket.
func serveAgent(t *testing.T, keys ...agent.AddedKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		if err := ring.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(ring, c)
			c.Close()
		}
	}()
	return path
}

func TestAgent(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mine := private()
	second := ed25519.NewKeyFromSeed([]byte(strings.Repeat("2", ed25519.SeedSize)))
	public, err := ssh.NewPublicKey(mine.Public())
	if err != nil {
		t.Fatal(err)
	}
	one := serveAgent(t, agent.AddedKey{PrivateKey: mine, Comment: "alice"}, agent.AddedKey{PrivateKey: other})
	two := serveAgent(t, agent.AddedKey{PrivateKey: mine, Comment: "alice"},
		agent.AddedKey{PrivateKey: second, Comment: "bob"})
	none := serveAgent(t, agent.AddedKey{PrivateKey: other, Comment: "alice"})
	id := sign.Fingerprint(mine.Public().(ed25519.PublicKey)).String()
	for _, c := range []struct{ value, socket, want string }{
		{"agent:", one, ""},
		{"ssh-agent:", one, ""},
		{"ssh-agent:alice", two, ""},
		{"ssh-agent:" + id, two, ""},
		{"ssh-agent:" + ssh.FingerprintSHA256(public), two, ""},
		{"agent:", two, "2 ed25519 keys"},
		{"ssh-agent:carol", two, "it has: alice (SHA256:"},
		{"ssh-agent:alice", none, "no ed25519 key"},
		{"agent:", "", "SSH_AUTH_SOCK is not set"},
		{"agent:", filepath.Join(t.TempDir(), "none"), "no ssh-agent answers"},
	} {
		k, err := signkey.Open(c.value, signkey.Options{Getenv: func(string) string { return c.socket }})
		switch {
		case c.want == "" && err == nil:
			check(t, k, "alice")
			k.Close()
		case err == nil || c.want == "" || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want %q", c.value, err, c.want)
		}
	}
}
