package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// recorded are the files in the inventory: those whose loss must not pass for a new node.
var recorded = []string{Database, NodeKey, TrustPin, Revoked}

// inventory lists the files that the directory has had.
type inventory struct {
	Version int      `json:"version"`
	Files   []string `json:"files"`
}

const inventoryVersion = 1

// readInventory returns the inventory. One that cannot be read counts as empty: the files that it
// lists exist, unless two faults coincide, and Record writes it again.
func (d *Dir) readInventory() (out inventory) {
	b, err := os.ReadFile(filepath.Join(d.path, Inventory))
	if err != nil || json.Unmarshal(b, &out) != nil || out.Version != inventoryVersion {
		return inventory{}
	}
	return out
}

// Record writes the inventory and the mark of the mounted disk, if they have changed. It is called
// once the state is in use, and again from time to time.
func (d *Dir) Record() error {
	next := inventory{Version: inventoryVersion}
	for _, name := range recorded {
		if st, err := os.Stat(filepath.Join(d.path, name)); err == nil && st.Size() > 0 {
			next.Files = append(next.Files, name)
		}
	}
	err := d.mark()
	if next.Version == d.known.Version && slices.Equal(next.Files, d.known.Files) {
		return err
	}
	b, _ := json.Marshal(next) // it has only strings
	if werr := files.ReplacePrivate(filepath.Join(d.path, Inventory), append(b, '\n')); werr != nil {
		return errors.Join(err, fmt.Errorf("write the inventory of the state: %w", werr))
	}
	d.known = next
	return err
}

// Accepted ends the acceptance of a loss, after the state is in use.
func (d *Dir) Accepted() error {
	if err := os.Remove(filepath.Join(d.path, AcceptLoss)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the acceptance of a loss stays in force: %w", err)
	}
	return nil
}

// markFile is the file outside the state directory that names the disk of the state.
const markFile = ".nearside-state"

// mountMark says where the disk of a state directory is mounted.
type mountMark struct {
	State string `json:"state"`
	Mount string `json:"mount"`
}

// mark writes the mark if the state directory is on a disk of its own.
func (d *Dir) mark() error {
	at := mountPoint(d.path)
	if at == "" {
		return nil
	}
	for _, dir := range d.outside {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || mountPoint(dir) == at {
			continue
		}
		path, want := filepath.Join(dir, markFile), mountMark{d.path, at}
		if readMark(path) == want {
			return nil
		}
		b, _ := json.Marshal(want) // it has only strings
		if err := files.ReplacePrivate(path, append(b, '\n')); err != nil {
			return fmt.Errorf("mark the disk of the state as mounted: %w", err)
		}
		return nil
	}
	return nil
}

func readMark(path string) (out mountMark) {
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return mountMark{}
	}
	return out
}

// unmounted returns a fault if the disk of the state was mounted before, and is not now.
func (d *Dir) unmounted() *Fault {
	for _, dir := range d.outside {
		m := readMark(filepath.Join(dir, markFile))
		if m.State != d.path || m.Mount == "" || mountPoint(d.path) == m.Mount {
			continue
		}
		return &Fault{Path: d.path, Reason: "has no state, and the disk that had it is not mounted",
			Remedy: fmt.Sprintf("run mount %s, or, if the disk is lost, remove %s", m.Mount, filepath.Join(dir, markFile))}
	}
	return nil
}

// mountPoint returns the deepest directory of a path that is on another device than its parent, or
// "" if there is none below the root. A bind mount within a device does not count.
func mountPoint(path string) string {
	device := func(p string) (dev uint64, ok bool) {
		var st syscall.Stat_t
		err := syscall.Stat(p, &st)
		return st.Dev, err == nil
	}
	for at := filepath.Clean(path); at != "/" && at != "."; at = filepath.Dir(at) {
		own, ok := device(at)
		above, found := device(filepath.Dir(at))
		if ok && found && own != above {
			return at
		}
	}
	return ""
}
