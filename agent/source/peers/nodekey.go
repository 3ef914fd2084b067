package peers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Names of files in paths.state.
const (
	keyFile       = "node-key"        // private key of the node, PKCS #8 in PEM
	formerKeyFile = "node-key.former" // key that the node had before; an operator renames it
	formerIDFile  = "node-id"         // ID of the node in earlier releases, which had no keys
	retiredIDFile = "node-id.retired" // the same file after other nodes know the new ID
)

const maxKeyFile = 64 << 10

// Identity is the key of a node, from which its ID follows.
type Identity struct {
	Node   engine.NodeID
	Signer sign.Signer
	Fresh  bool            // the node was created by this start
	Former []gossip.Former // earlier identities of the node
}

// FileError is the error for a file of the identity of the node, or of the pool in an earlier
// release, that exists and cannot be used.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// keyError wraps the error of reading a file that exists.
func keyError(path string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return &FileError{path, err}
}

// OpenIdentity reads the key of this node in its state directory, or creates one. A key that cannot
// be read is an error: it is never replaced.
func OpenIdentity(dir string) (id Identity, err error) {
	key, err := readKey(filepath.Join(dir, keyFile))
	created := errors.Is(err, fs.ErrNotExist)
	if created {
		key, err = createKey(dir)
	}
	if err != nil {
		return id, err
	}
	id = identityOf(key)
	former, err := readKey(filepath.Join(dir, formerKeyFile))
	switch {
	case err == nil:
		was := identityOf(former)
		id.Former = append(id.Former, gossip.Former{Node: was.Node, Signer: was.Signer})
	case !errors.Is(err, fs.ErrNotExist):
		return id, err
	}
	path := filepath.Join(dir, formerIDFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		was, err := engine.ParseNodeID(strings.TrimSpace(string(b)))
		if err != nil {
			return id, keyError(path, fmt.Errorf("%s: %w; it names the node in earlier releases: restore it from a backup, "+
				"or remove it and run \"nearside forget\" for the former ID", path, err))
		}
		id.Former = append(id.Former, gossip.Former{Node: was, Retired: func() { retireID(dir) }})
	case !errors.Is(err, fs.ErrNotExist):
		return id, keyError(path, fmt.Errorf("read the former ID of this node: %w", err))
	}
	id.Fresh = created && len(id.Former) == 0
	return id, nil
}

// retireID renames the file with the former ID, so later starts do not read it. On failure, the
// next start tries again.
func retireID(dir string) {
	if err := os.Rename(filepath.Join(dir, formerIDFile), filepath.Join(dir, retiredIDFile)); err != nil {
		slog.Warn("cannot rename the file with the former ID of this node", "error", err)
	}
}

// NewIdentity replaces the key of this node, because its state directory is a copy. The former
// identities belong to the original.
func NewIdentity(dir string) (Identity, error) {
	for _, name := range []string{formerIDFile, formerKeyFile} { // first, so the copy never has them with another key
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Identity{}, fmt.Errorf("remove the former identity of this node: %w", err)
		}
	}
	key, err := createKey(dir)
	if err != nil {
		return Identity{}, err
	}
	id := identityOf(key)
	id.Fresh = true
	return id, nil
}

func identityOf(key ed25519.PrivateKey) Identity {
	s := sign.Key(key)
	return Identity{Node: engine.NodeID(sign.Fingerprint(s.Public())), Signer: s}
}

// readKey reads a private key. The error wraps [fs.ErrNotExist] if there is no such file, and is a
// [FileError] otherwise.
func readKey(path string) (ed25519.PrivateKey, error) {
	key, err := parseKeyFile(path)
	return key, keyError(path, err)
}

func parseKeyFile(path string) (ed25519.PrivateKey, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of this node: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the key of this node: %w", err)
	}
	if text := files.Exposed(st.Mode().Perm()); text != "" {
		return nil, fmt.Errorf("%s %s; if others may have read it, use it as %s and let the agent create a new one", path,
			text, formerKeyFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the key of this node: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s is damaged: a PEM block of type PRIVATE KEY is required; %s", path, restoreKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s is damaged: an ed25519 key in PKCS #8 is required; %s", path, restoreKey)
	}
	return key, nil
}

const restoreKey = "restore it from a backup, or remove it to become a new node, which gets the name of this one " +
	"after you run \"nearside forget\" for this node on another node"

// createKey creates the key of a node. When it returns, the file and its name are on disk.
func createKey(dir string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key for this node: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of this node: %w", err)
	}
	if err := writeKey(dir, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return nil, fmt.Errorf("write the key of this node: %w", err)
	}
	return key, nil
}

// writeKey replaces the key file.
func writeKey(dir string, b []byte) error {
	if err := files.ReplacePrivate(filepath.Join(dir, keyFile), b); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
