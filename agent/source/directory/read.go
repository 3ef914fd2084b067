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
)

// fileState is what is known of one resource file. A scan replaces it; only the result of applying
// is noted in it.
type fileState struct {
	path      string
	link      bool
	sig       signature // of the content that was read; zero when none was
	trusted   bool      // an equal signature means equal content
	sum       [sha256.Size]byte
	resources []*resource.Resource // the last good content
	loaded    time.Time            // when resources last changed
	faults    resource.Faults      // of the content as it is now
	refused   resource.Faults      // resources of the last good content that the role of the directory does not allow

	vanished bool // it is not there
	empty    bool // what is there holds no document
	// when it was seen vanished or empty first; zero while it is not, or the directory cannot be
	// listed
	since time.Time
	grace time.Duration // from since on, that what it had stays in force

	conflicts map[string]string // key: the source that holds it instead; set by plan
	active    int               // resources that are in force from this file; set by plan
}

// signature tells versions of a file apart without reading them.
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

// settled is how old a file must be at its reading for its times to tell it from a later version:
// two changes within one tick of a coarse file system look alike.
const settled = 2 * time.Second

// maxDirEntries bounds the entries of a directory that are looked at, resource files or not.
const maxDirEntries = 100_000

// exposed says who else can read or write a file that holds a secret, "" where nobody can, or it
// holds none.
func (f *fileState) exposed() string {
	if !slices.ContainsFunc(f.resources, func(r *resource.Resource) bool { return r.HasSecrets }) {
		return ""
	}
	return files.Exposed(f.sig.mode)
}

// listResources returns the paths of the resource files of a directory, sorted.
func listResources(dir string, limit int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if st, err := d.Stat(); err != nil {
		return nil, err
	} else if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	var out []string
	for seen := 0; ; {
		names, err := d.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		for _, n := range names {
			if isResourceFile(n) {
				out = append(out, filepath.Join(dir, n))
			}
		}
		if seen += len(names); seen > maxDirEntries || len(out) > limit {
			return nil, fmt.Errorf("%s holds too many files (at most %d resource files and %d entries)",
				dir, limit, maxDirEntries)
		}
	}
	slices.Sort(out)
	return out, nil
}

// isResourceFile reports whether a file of that name is read. Hidden files and what editors leave
// beside a file (.a.yaml.swp, #a.yaml#, a.yaml~) are not.
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

// read looks at one file. It returns prev itself when nothing has changed, and nil when the file is
// gone.
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
	data, sig, err := readStable(prev.path, s.role(prev.path) != "", min(s.o.FileBytes, budget))
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.link:
		return nil
	case errors.Is(err, errMoving):
		s.moving[f.path] = true
		fallthrough
	case err != nil:
		f.sig, f.trusted, f.empty = signature{}, false, false
		f.faults = resource.Faults{{File: f.path, Reason: readReason(err, f.link, s.o)}}
		return &f
	}
	sum := sha256.Sum256(data)
	same := f.sig != (signature{}) && sum == f.sum
	f.sig, f.sum = sig, sum
	f.trusted = started.Sub(time.Unix(0, max(sig.mtime, sig.ctime))) > settled
	if same {
		return &f
	}
	rs, faults := s.o.Registry.Decode(f.path, data)
	faults = append(faults, twice(f.path, rs)...)
	content := len(rs) > 0
	rs, refused := s.admit(f.path, rs)
	if age := time.Since(time.Unix(0, sig.mtime)); s.begun && age >= 0 && age < s.o.Rest &&
		(len(faults) > 0 || content && lacksAny(rs, f.resources)) {
		s.moving[f.path] = true // this may be the first part of what is being written
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

// readReason says what is wrong with a file that cannot be read, and what to do.
func readReason(err error, link bool, o Options) string {
	switch {
	case errors.Is(err, errTooLarge):
		return fmt.Sprintf("%v; a resource file may have at most %d bytes and all together %d: split it or remove what is "+
			"not needed", err, o.FileBytes, o.TotalBytes)
	case errors.Is(err, files.ErrLeadsOut):
		return fmt.Sprintf("%v; the directory has a role, so that links must be relative and stay inside: put the "+
			"content there", err)
	case errors.Is(err, syscall.ELOOP):
		return "the symbolic links lead in a circle; remove the file or let it lead to a file"
	case errors.Is(err, fs.ErrNotExist) && link:
		return "the symbolic link leads nowhere; remove it or create what it leads to"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("cannot be read: %v; let the agent's user read it", err)
	}
	return fmt.Sprintf("cannot be read: %v", err)
}

var (
	errTooLarge = errors.New("the file is too large")
	errMoving   = errors.New("it changes while it is read; it is read again when it has come to rest")
)

// readStable returns the content of a file that did not change meanwhile. With inside, symbolic
// links must not lead out of its directory: who may write there may not be allowed to read what the
// agent can.
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
		return nil, signature{}, errMoving
	}
	return data, sig, nil
}

// twice reports resources that stand in one file more than once.
func twice(path string, rs []*resource.Resource) resource.Faults {
	var out resource.Faults
	seen := make(map[resource.Key]bool, len(rs))
	for _, r := range rs {
		if seen[r.Key] {
			out = append(out, resource.Fault{File: path, Resource: r.Key.String(),
				Reason: r.Key.String() + " stands in this file more than once; keep one"})
		}
		seen[r.Key] = true
	}
	return out
}

// lacksAny reports whether some of the resources before are not there now.
func lacksAny(now, before []*resource.Resource) bool {
	return slices.ContainsFunc(before, func(b *resource.Resource) bool {
		return !slices.ContainsFunc(now, func(n *resource.Resource) bool { return n.Key == b.Key })
	})
}

// sameResources reports whether two files hold the same, in any order.
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
