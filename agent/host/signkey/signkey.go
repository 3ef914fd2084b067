// Package signkey opens the ed25519 keys with which operators sign records of the pool.
//
// A key is in a file (OpenSSH or PKCS#8 PEM), which only its owner may read, or in an ssh-agent,
// which signs without revealing it. Private keys never appear in messages or errors.
package signkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Env is the variable with the key that commands use without --sign.
const Env = "NEARSIDE_KEY"

// Key is an open key. It is safe for concurrent use.
type Key struct {
	sign.Signer
	Name string // comment of the key, which may be empty
	shut func()
}

// Close releases the connection to an ssh-agent.
func (k *Key) Close() {
	if k.shut != nil {
		k.shut()
	}
}

// Options provide the surroundings of a process. Nil functions mean that there is none.
type Options struct {
	Getenv func(string) string // for SSH_AUTH_SOCK
	// Passphrase asks for the passphrase of a key file; see [Terminal].
	Passphrase func(path string) ([]byte, error)
}

// Open opens the key that a value of --sign names: a path, "agent:" for the only ed25519 key of the
// ssh-agent, or "ssh-agent:FINGERPRINT" or "ssh-agent:COMMENT" for one of several. The caller
// closes it.
func Open(value string, o Options) (*Key, error) {
	for _, prefix := range []string{"agent:", "ssh-agent:"} {
		if wanted, ok := strings.CutPrefix(value, prefix); ok {
			return openAgent(wanted, o)
		}
	}
	b, err := Read(value)
	if err != nil {
		return nil, err
	}
	private, comment, err := Parse(b, func() ([]byte, error) {
		if o.Passphrase == nil {
			return nil, errEncrypted
		}
		return o.Passphrase(value)
	})
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", value, err)
	}
	return &Key{Signer: sign.Key(private), Name: comment}, nil
}

// maxFile is the maximum size of a key file in bytes.
const maxFile = 64 << 10

// Read returns the content of a key file. It refuses a file that other users can access, because
// they may have copied the key.
func Read(path string) ([]byte, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w; make a key with: nearside keys generate", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("key %s has mode %#o, so other users may have copied it: run chmod 0600 %s, and replace "+
			"the key unless you are sure that only you had access", path, mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("key: %w", err)
	case len(b) > maxFile:
		return nil, fmt.Errorf("key %s has more than %d bytes; give the file of an ed25519 key", path, maxFile)
	}
	return b, nil
}

var (
	errEncrypted = errors.New("is encrypted, and there is no terminal to ask for its passphrase: add it to an " +
		"ssh-agent with ssh-add, and give ssh-agent:COMMENT")
	errFormat = errors.New("has no private key in OpenSSH or PKCS#8 format; make one with: nearside keys generate, or " +
		"ssh-keygen -t ed25519")
)

// Parse decodes a private key in OpenSSH or PKCS#8 format. It calls passphrase for an encrypted
// OpenSSH key. comment is that of the key, or "".
func Parse(b []byte, passphrase func() ([]byte, error)) (key ed25519.PrivateKey, comment string, err error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, "", errFormat
	}
	var found any
	switch block.Type {
	case "PRIVATE KEY":
		found, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, "", errors.New("is an encrypted PKCS#8 key, which is not supported; convert it with: " +
			"ssh-keygen -p -f FILE")
	case "OPENSSH PRIVATE KEY":
		found, err = ssh.ParseRawPrivateKey(b)
		if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
			var secret []byte
			if secret, err = passphrase(); err != nil {
				return nil, "", err
			}
			found, err = ssh.ParseRawPrivateKeyWithPassphrase(b, secret)
			clear(secret)
		}
		comment = commentOf(block.Bytes)
	default:
		return nil, "", errFormat
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot be read: %w", err)
	}
	switch k := found.(type) {
	case ed25519.PrivateKey:
		return k, comment, nil
	case *ed25519.PrivateKey:
		return *k, comment, nil
	}
	return nil, "", fmt.Errorf("is of type %T; only ed25519 keys are supported: ssh-keygen -t ed25519", found)
}

// commentOf returns the comment of an OpenSSH key without encryption, or "".
func commentOf(b []byte) string {
	rest, ok := bytes.CutPrefix(b, []byte("openssh-key-v1\x00"))
	if !ok {
		return ""
	}
	var outer struct {
		Cipher, KDF, Options string
		Keys                 uint32
		Public, Private      []byte
	}
	if ssh.Unmarshal(rest, &outer) != nil || outer.Cipher != "none" || outer.Keys != 1 {
		return ""
	}
	var inner struct {
		Check1, Check2  uint32
		Type            string
		Public, Private []byte
		Comment         string
		Padding         []byte `ssh:"rest"`
	}
	if ssh.Unmarshal(outer.Private, &inner) != nil {
		return ""
	}
	return inner.Comment
}

// Terminal asks for a passphrase on the controlling terminal, without echo. It does not use
// standard input, which may contain resources.
func Terminal(path string) ([]byte, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, errEncrypted
	}
	defer tty.Close()
	_, _ = fmt.Fprintf(tty, "passphrase of %q: ", path)
	b, err := term.ReadPassword(int(tty.Fd()))
	_, _ = fmt.Fprintln(tty)
	if err != nil {
		return nil, fmt.Errorf("the passphrase cannot be read: %w", err)
	}
	return b, nil
}
