package peers

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/nearside-mesh/nearside/agent/files"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// maxKeys bounds the keys of a keyring.
const maxKeys = 16

// ReadKeys reads a keyring: base64 keys of 16, 24 or 32 bytes, one a line. The first one encrypts, all decrypt. Empty lines, and lines that
// begin with #, do not count. A file that others than its owner may open is refused: they may have the keys.
func ReadKeys(path string) ([][]byte, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w; make one with: head -c 32 /dev/urandom | base64", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w", err)
	} else if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("gossip.keyringFile: %s has the mode %#o, so that others than its owner may know the keys; run chmod 0600 %s, and use other keys", path, mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("gossip.keyringFile: %w", err)
	}
	var out [][]byte
	s := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("gossip.keyringFile: %s: line %d is not base64", path, n)
		case len(key) != 16 && len(key) != 24 && len(key) != 32:
			return nil, fmt.Errorf("gossip.keyringFile: %s: line %d has a key of %d bytes; 16, 24 or 32 are allowed", path, n, len(key))
		case len(out) == maxKeys:
			return nil, fmt.Errorf("gossip.keyringFile: %s has more than %d keys; remove those that nobody uses any more", path, maxKeys)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("gossip.keyringFile: %s has no key; make one with: head -c 32 /dev/urandom | base64", path)
	}
	return out, nil
}

// nodeID reads the id of this node, or makes a fresh one: it names the node for all its life.
func nodeID(path string) (id gossip.NodeID, fresh bool, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		if id, err = engine.ParseNodeID(strings.TrimSpace(string(b))); err != nil {
			err = fmt.Errorf("%s: %w; restore it from a backup, or remove it to become a new node", path, err)
		}
		return id, false, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return id, false, fmt.Errorf("the id of this node: %w", err)
	}
	_, _ = rand.Read(id[:]) // it never fails
	if err := renameio.WriteFile(path, []byte(id.String()+"\n"), 0o600); err != nil {
		return id, false, fmt.Errorf("the id of this node: %w", err)
	}
	return id, true, nil
}
