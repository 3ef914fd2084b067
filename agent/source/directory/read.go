package directory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/source/kubernetes"
)

// fileState is the state of one resource file. A scan replaces it; plan sets only the last two
// fields.
type fileState struct {
	path, dir string
	link      bool
	sig       signature // of the content that was read; zero for none
	trusted   bool      // an equal signature means equal content
	sum       [sha256.Size]byte
	resources []*resource.Resource // the last good content
	loaded    time.Time            // last change of resources
	faults    resource.Faults      // of the current content
	refused   resource.Faults      // resources of the last good content that the role of the directory does not allow

	vanished bool // the file does not exist
	empty    bool // the file contains no documents
	// since is the time when the file was first seen vanished or empty; zero otherwise, or if the
	// directory cannot be listed.
	since time.Time
	grace time.Duration // how long the content is retained after since at most
	until time.Time     // when its retention ends if nothing changes

	conflicts map[string]string // key → source that holds it; set by plan
	active    int               // resources in force from this file; set by plan
}

func newFile(path string) *fileState { return &fileState{path: path, dir: filepath.Dir(path)} }

// signature identifies a version of a file without reading it.
type signature struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // ns
	mode         fs.FileMode
}

func signatureOf(st fs.FileInfo) signature {
	sig := signature{size: st.Size(), mtime: st.ModTime().UnixNano(), mode: st.Mode().Perm()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		sig.dev, sig.ino, sig.ctime = uint64(sys.Dev), sys.Ino, sys.Ctim.Nano()
	}
	return sig
}

// minTrustAge is the minimum age of a file when it is read, so that its signature can be trusted:
// two changes within one tick of a coarse file system have equal times.
const minTrustAge = 2 * time.Second

// maxDirEntries limits the entries of a directory, including those that are not resource files.
const maxDirEntries = 100_000

// exposed returns which other users can read or write a file with a secret, or "".
func (f *fileState) exposed() string {
	if !slices.ContainsFunc(f.resources, func(r *resource.Resource) bool { return r.HasSecrets }) {
		return ""
	}
	return files.Exposed(f.sig.mode)
}

// listResources returns the paths of the resource files in a directory, sorted, and whether it has
// the marker of the watcher of Kubernetes.
func listResources(dir string, limit int) (out []string, marked bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	if st, err := d.Stat(); err != nil {
		return nil, false, err
	} else if !st.IsDir() {
		return nil, false, fmt.Errorf("%s is not a directory", dir)
	}
	for seen := 0; ; {
		names, err := d.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, fmt.Errorf("list %s: %w", dir, err)
		}
		for _, n := range names {
			marked = marked || n == kubernetes.Marker
			if isResourceFile(n) {
				out = append(out, filepath.Join(dir, n))
			}
		}
		if seen += len(names); seen > maxDirEntries || len(out) > limit {
			return nil, false, fmt.Errorf("%s contains too many files (at most %d resource files and %d entries are allowed)",
				dir, limit, maxDirEntries)
		}
	}
	slices.Sort(out)
	return out, marked, nil
}

// isResourceFile reports whether a file name is that of a resource file. Hidden files and temporary
// files of editors (.a.yaml.swp, #a.yaml#, a.yaml~) are not.
func isResourceFile(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// read reads one file. It returns a copy of prev if nothing has changed, and nil if the file does
// not exist.
func (s *Source) read(prev *fileState, budget int64) *fileState {
	lst, err := os.Lstat(prev.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f := *prev
	f.vanished = false
	f.link = err == nil && lst.Mode()&fs.ModeSymlink != 0
	if err == nil && prev.trusted {
		if st, err := os.Stat(prev.path); err == nil && signatureOf(st) == prev.sig {
			return &f
		}
	}
	asBefore := f
	started := s.o.Now()
	data, sig, err := readStable(prev.path, s.confined(prev.path), min(s.o.FileBytes, budget))
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.link:
		return nil
	case errors.Is(err, errUnstable):
		s.unstable[f.path] = true
		fallthrough
	case err != nil:
		f.sig, f.trusted, f.empty = signature{}, false, false
		f.faults = resource.Faults{{File: f.path, Reason: readReason(err, f.link, s.o)}}
		return &f
	}
	sum := sha256.Sum256(data)
	same := f.sig != (signature{}) && sum == f.sum
	f.sig, f.sum = sig, sum
	f.trusted = started.Sub(time.Unix(0, max(sig.mtime, sig.ctime))) > minTrustAge
	if same {
		return &f
	}
	rs, faults := s.o.Registry.Decode(f.path, data)
	faults = append(faults, duplicates(f.path, rs)...)
	content := len(rs) > 0
	rs, refused := s.admit(f.path, rs)
	if age := time.Since(time.Unix(0, sig.mtime)); s.begun && age >= 0 && age < s.o.Rest &&
		(len(faults) > 0 || content && lacksAny(rs, f.resources)) {
		s.unstable[f.path] = true // the file may be incomplete
		return &asBefore
	}
	f.faults = faults
	f.empty = len(faults) == 0 && !content
	if len(faults) == 0 && !f.empty {
		if !sameResources(f.resources, rs) {
			f.loaded = started
		}
		f.resources, f.refused = rs, refused
	}
	return &f
}

// readReason returns the reason why a file cannot be read, and a remedy.
func readReason(err error, link bool, o Options) string {
	switch {
	case errors.Is(err, errTooLarge):
		return fmt.Sprintf("%v; a resource file may have at most %d bytes and all files together %d: split it or remove "+
			"resources", err, o.FileBytes, o.TotalBytes)
	case errors.Is(err, files.ErrLeadsOut):
		return fmt.Sprintf("%v; the directory has a role or is published, so links must be relative and stay inside "+
			"it: put the content there", err)
	case errors.Is(err, syscall.ELOOP):
		return "the symbolic links form a loop; remove the file or link it to a file"
	case errors.Is(err, fs.ErrNotExist) && link:
		return "the target of the symbolic link does not exist; remove the link or create the target"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("cannot be read: %v; allow the agent's user to read it", err)
	}
	return fmt.Sprintf("cannot be read: %v", err)
}

var (
	errTooLarge = errors.New("the file is too large")
	errUnstable = errors.New("the file changed while it was read; it will be read again when it is stable")
)

// readStable returns the content of a file that did not change while it was read. With inside,
// symbolic links must stay in its directory: users who can write there may not be allowed to read
// everything that the agent can.
func readStable(path string, inside bool, limit int64) ([]byte, signature, error) {
	open := files.OpenRegular
	if inside {
		open = files.OpenRegularInside
	}
	f, err := open(path)
	if err != nil {
		return nil, signature{}, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, signature{}, err
	}
	if before.Size() > limit {
		return nil, signature{}, fmt.Errorf("%w: %d bytes", errTooLarge, before.Size())
	}
	data := make([]byte, before.Size())
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, signature{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, signature{}, err
	}
	sig := signatureOf(before)
	if n != len(data) || sig.size != after.Size() || sig.mtime != after.ModTime().UnixNano() {
		return nil, signature{}, errUnstable
	}
	return data, sig, nil
}

// duplicates returns a fault for each resource that occurs more than once in a file.
func duplicates(path string, rs []*resource.Resource) resource.Faults {
	var out resource.Faults
	seen := make(map[resource.Key]bool, len(rs))
	for _, r := range rs {
		if seen[r.Key] {
			out = append(out, resource.Fault{File: path, Resource: r.Key.String(),
				Reason: r.Key.String() + " occurs more than once in this file; keep one"})
		}
		seen[r.Key] = true
	}
	return out
}

// lacksAny reports whether some resources of before are missing in now.
func lacksAny(now, before []*resource.Resource) bool {
	return slices.ContainsFunc(before, func(b *resource.Resource) bool {
		return !slices.ContainsFunc(now, func(n *resource.Resource) bool { return n.Key == b.Key })
	})
}

// sameResources reports whether a and b contain the same resources, in any order.
func sameResources(a, b []*resource.Resource) bool {
	if len(a) != len(b) {
		return false
	}
	digests := make(map[resource.Key]resource.Digest, len(a))
	for _, r := range a {
		digests[r.Key] = r.Digest
	}
	for _, r := range b {
		if d, ok := digests[r.Key]; !ok || d != r.Digest {
			return false
		}
	}
	return true
}
