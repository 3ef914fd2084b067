package directory

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// dirWatch watches directories and everything that determines their content: the directories that
// contain symbolic links on the path to them or to their files, the targets of those links, and the
// nearest existing parent of a missing directory. It watches only directories, because a watch on a
// file is lost when an editor replaces the file.
type dirWatch struct {
	of     []string // configured directories
	log    *slog.Logger
	w      *fsnotify.Watcher // nil: the system provides none
	ok     bool              // all directories are watched
	warned bool              // the failure was logged

	real  map[string][]string // resolved path → configured directories; missing ones have none
	dirs  map[string]dirID    // watched directories
	names map[string]bool     // relevant entries outside the configured directories
}

// dirID identifies a directory, to detect its replacement.
type dirID struct{ dev, ino uint64 }

func newDirWatch(o Options) *dirWatch {
	d := &dirWatch{log: o.Log, dirs: map[string]dirID{}, names: map[string]bool{}}
	for _, dir := range o.Dirs {
		d.of = append(d.of, filepath.Clean(dir.Path))
	}
	var err error
	if d.w, err = o.Watcher(); err != nil {
		d.w = nil
		o.Log.Warn("cannot watch the resource directories, polling them instead; "+
			"see the limits fs.inotify.max_user_instances and max_user_watches", "dirs", d.of, "error", err)
	}
	return d
}

// lost disables a watcher that has stopped.
func (d *dirWatch) lost() {
	d.log.Warn("the watcher of the resource directories has stopped; polling them instead", "dirs", d.of)
	d.close()
	d.w = nil
}

func (d *dirWatch) close() {
	if d.w != nil {
		_ = d.w.Close()
	}
}

// events returns the event channel, or nil without a watcher.
func (d *dirWatch) events() <-chan fsnotify.Event {
	if d.w == nil {
		return nil
	}
	return d.w.Events
}

func (d *dirWatch) errors() <-chan error {
	if d.w == nil {
		return nil
	}
	return d.w.Errors
}

// works reports whether every change is detected.
func (d *dirWatch) works() bool { return d.w != nil && d.ok }

// relevant reports whether an event can change the result of a scan. Temporary files of writers
// cannot.
func (d *dirWatch) relevant(e fsnotify.Event) bool {
	if _, ok := d.dirs[e.Name]; ok && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		delete(d.dirs, e.Name) // the watch has ended too
		return true
	}
	name := filepath.Base(e.Name)
	return d.real[e.Name] != nil || d.names[e.Name] ||
		d.real[filepath.Dir(e.Name)] != nil && (isResourceFile(name) || name == RevisionFile)
}

// dirsOf returns the configured directories of the entry that an event names.
func (d *dirWatch) dirsOf(e fsnotify.Event) []string { return d.real[filepath.Dir(e.Name)] }

// file returns the path of the resource file that an event is about: changed, created, deleted, or
// renamed. It returns "" if the event can mean more: links, and other directories.
func (d *dirWatch) file(e fsnotify.Event) string {
	name, of := filepath.Base(e.Name), d.real[filepath.Dir(e.Name)]
	_, watched := d.dirs[e.Name]
	if watched || d.names[e.Name] || len(of) != 1 || !isResourceFile(name) {
		return ""
	}
	return filepath.Join(of[0], name)
}

// follow watches the directories that the content depends on now. It reports whether there is a new
// one, where changes may have been missed.
func (d *dirWatch) follow(links []string) bool {
	if d.w == nil {
		return false
	}
	t := trail{dirs: map[string]bool{}, names: map[string]bool{}}
	d.real = map[string][]string{}
	for _, dir := range d.of {
		if real := t.walk(dir); real != "" {
			d.real[real] = append(d.real[real], dir)
			t.dirs[real] = true
		}
	}
	for _, l := range links {
		t.walk(l)
	}
	d.names = t.names
	d.ok = true
	fresh := false
	for dir := range t.dirs {
		// Adding an existing watch is cheap, and detects a replaced directory whose event may be lost.
		id, err := d.add(dir)
		if err != nil {
			d.ok = false
			if !d.warned {
				d.warned = true
				d.log.Warn("cannot watch a resource directory, polling it instead", "dir", dir, "error", err)
			}
			continue
		}
		fresh = fresh || d.dirs[dir] != id
		d.dirs[dir] = id
	}
	for dir := range d.dirs {
		if !t.dirs[dir] {
			_ = d.w.Remove(dir) // it may have been removed with its directory
			delete(d.dirs, dir)
		}
	}
	return fresh
}

// add watches a directory and returns its identity.
func (d *dirWatch) add(dir string) (dirID, error) {
	if err := d.w.Add(dir); err != nil {
		return dirID{}, err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return dirID{}, err
	}
	sig := signatureOf(st)
	return dirID{sig.dev, sig.ino}, nil
}

// trail collects the directories and entries that a path depends on.
type trail struct {
	dirs, names map[string]bool
}

// maxLinks limits the symbolic links on one path, like the kernel.
const maxLinks = 40

// walk resolves path link by link. It records every directory that contains a link or the end of
// the path. It returns the path without links, or "" if an element is missing; then it records
// where the element would appear.
func (t trail) walk(path string) string {
	at, rest, links := "/", split(path), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		st, err := os.Lstat(next)
		if err != nil {
			t.note(at, next)
			return ""
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			if len(rest) == 0 && !st.IsDir() {
				t.note(at, next)
			}
			at = next
			continue
		}
		t.note(at, next)
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return ""
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	return at
}

func (t trail) note(dir, entry string) { t.dirs[dir], t.names[entry] = true, true }

// split returns the elements of a path, without empty ones and ".".
func split(path string) []string {
	var out []string
	for e := range strings.SplitSeq(path, "/") {
		if e != "" && e != "." {
			out = append(out, e)
		}
	}
	return out
}
