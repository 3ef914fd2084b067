package peers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// NodeID reads the permanent ID of this node in its state directory, or creates one. fresh reports
// that it is new.
func NodeID(dir string) (id engine.NodeID, fresh bool, err error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if err == nil {
		if id, err = engine.ParseNodeID(strings.TrimSpace(string(b))); err != nil {
			err = fmt.Errorf("%s: %w; restore it from a backup, or remove it to become a new node", path, err)
		}
		return id, false, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return id, false, fmt.Errorf("read the ID of this node: %w", err)
	}
	id, err = NewNodeID(dir)
	return id, err == nil, err
}

// NewNodeID creates a permanent ID for this node in its state directory. It replaces another one.
func NewNodeID(dir string) (id engine.NodeID, err error) {
	_, _ = rand.Read(id[:]) // never fails
	if err := renameio.WriteFile(filepath.Join(dir, identityFile), []byte(id.String()+"\n"), 0o600); err != nil {
		return id, fmt.Errorf("write the ID of this node: %w", err)
	}
	return id, nil
}
