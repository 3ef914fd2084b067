package intercept

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// DirName is the directory of records below paths.run.
const DirName = "intercept"

const maxRecord = 64 << 10 // bytes

// Record describes an installation for the agent. Its file is named after the inode of the
// namespace.
type Record struct {
	// Netns is the path of the network namespace for the agent; "" is the agent's own namespace.
	Netns string `json:"netns,omitempty"`
	Inode uint64 `json:"inode"`
	// Rule is the name of the rule of a [Watcher] that installed it; "" if a command did.
	Rule string `json:"rule,omitempty"`
	// Dataplane is the Dataplane of the pod for which [Pods] installed it; else "".
	Dataplane string `json:"dataplane,omitempty"`
	Spec      Spec   `json:"spec"`
}

func recordPath(dir string, inode uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%d.json", inode))
}

// equal reports whether two records are equal.
func (r *Record) equal(o *Record) bool { return r.Netns == o.Netns && r.same(o) }

// same reports whether two records describe the same installation, perhaps by different paths.
func (r *Record) same(o *Record) bool {
	return r.Inode == o.Inode && r.Rule == o.Rule && r.Dataplane == o.Dataplane && r.Spec.equal(&o.Spec)
}

// byCommand reports whether nearside intercept install made the installation.
func (r *Record) byCommand() bool { return r.Rule == "" && r.Dataplane == "" }

// equal reports whether two specs are equal.
func (s *Spec) equal(o *Spec) bool {
	a, err := json.Marshal(s)
	b, oerr := json.Marshal(o)
	return err == nil && oerr == nil && bytes.Equal(a, b)
}

// write writes the record to a directory, replacing one for the same namespace.
func (r *Record) write(dir string) error {
	if err := makeRecordDir(dir); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	if err := renameio.WriteFile(recordPath(dir, r.Inode), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the record for the agent: %w", err)
	}
	return nil
}

// makeRecordDir creates the directory for the owner of the run directory. The run directory must
// exist, because it belongs to the agent.
func makeRecordDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = chownToOwner(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the directory of records: %w; start the agent first, "+
			"or set its run directory with --run-dir", err)
	}
	return checkOwner(dir)
}

// chownToOwner changes the owner of a new directory to that of its parent, which is the agent's
// user.
func chownToOwner(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chown(ownerOf(filepath.Dir(dir)), -1)
}

// ownerOf returns the user who should own files in a directory if this process is root, and
// otherwise -1.
func ownerOf(dir string) int {
	st, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return -1
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

// lockRecords waits until no other process changes the installations.
func lockRecords(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		err = f.Chown(ownerOf(dir), -1) // do not change an existing file: it may be a link
	} else if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the records: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the records: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// checkOwner returns an error if users other than root, this user, and the owner of the directory
// could have written the file. A record makes the agent enter a namespace, and the run directory
// belongs to the agent.
func checkOwner(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	uid := st.Sys().(*syscall.Stat_t).Uid
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; remove it", path)
	case uid != 0 && int(uid) != os.Geteuid() && uid != above.Sys().(*syscall.Stat_t).Uid:
		return fmt.Errorf("%s belongs to uid %d, but only files of root and the agent's user are trusted; remove it, "+
			"or change its owner to root", path, uid)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has the mode %04o, so that others may write to it; run chmod go-w %s",
			path, st.Mode().Perm(), path)
	}
	return nil
}

// readRecords returns all records of a directory by namespace, and an error for each unreadable
// one.
func readRecords(dir string) ([]Record, []error) {
	if err := checkOwner(dir); err != nil {
		return nil, asErrors(ignoreMissing(err))
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, asErrors(ignoreMissing(err))
	}
	var out []Record
	var errs []error
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		inode, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil {
			continue
		}
		r, err := readRecord(filepath.Join(dir, e.Name()))
		if err == nil && r.Inode != inode {
			err = fmt.Errorf("%s: inode is %d; it must be that of the name", filepath.Join(dir, e.Name()), r.Inode)
		}
		if err == nil {
			out = append(out, *r)
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return int(a.Inode) - int(b.Inode) })
	return out, errs
}

func asErrors(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

func readRecord(path string) (*Record, error) {
	if err := checkOwner(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; run nearside intercept install again", path, err)
	}
	return r, nil
}

// decodeRecord decodes a record strictly.
func decodeRecord(b []byte) (*Record, error) {
	if len(b) > maxRecord {
		return nil, fmt.Errorf("the record is larger than %d bytes", maxRecord)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	var r Record
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("no record: %w", err)
	}
	if d.More() {
		return nil, errors.New("unexpected data after the record")
	}
	if r.Netns != "" && (!filepath.IsAbs(r.Netns) || strings.Contains(r.Netns, "\x00")) {
		return nil, fmt.Errorf("netns: %q is not absolute", r.Netns)
	}
	r.Spec.Normalize()
	if err := r.Spec.Validate(); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return &r, nil
}
