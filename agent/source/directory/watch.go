package directory

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// dirWatch watches directories and whatever decides what lies in them: the directories that hold
// the symbolic links on the way to them and to their files, the targets of those, and the nearest
// directory above while one is missing. Only directories are watched, since a watch on a file dies
// with every editor that replaces it.
type dirWatch struct {
	of   []string // the directories
	log  *slog.Logger
	w    *fsnotify.Watcher // nil: the system gives none
	ok   bool              // all places are watched
	told bool              // that they are not

	real  map[string][]string // path without links: those of the directories that it is; missing ones have none
	dirs  map[string]dirID    // watched
	names map[string]bool     // entries of other directories than the real ones that matter
}

// dirID tells a directory from another one that took its place.
type dirID struct{ dev, ino uint64 }

func newDirWatch(o Options) *dirWatch {
	d := &dirWatch{log: o.Log, dirs: map[string]dirID{}, names: map[string]bool{}}
	for _, dir := range o.Dirs {
		d.of = append(d.of, filepath.Clean(dir.Path))
	}
	var err error
	if d.w, err = o.Watcher(); err != nil {
		d.w = nil
		o.Log.Warn("the resource directories cannot be watched and are polled instead; "+
			"the limits are fs.inotify.max_user_instances and max_user_watches", "dirs", d.of, "error", err)
	}
	return d
}

// lost gives up a watcher that has ended by itself.
func (d *dirWatch) lost() {
	d.log.Warn("the watcher of the resource directories has ended; they are polled instead", "dirs", d.of)
	d.close()
	d.w = nil
}

func (d *dirWatch) close() {
	if d.w != nil {
		_ = d.w.Close()
	}
}

// events returns nil, which is never ready, where nothing can be watched.
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

// works reports whether every change is seen.
func (d *dirWatch) works() bool { return d.w != nil && d.ok }

// concerns reports whether an event can change what a scan finds.
func (d *dirWatch) concerns(e fsnotify.Event) bool {
	if _, ok := d.dirs[e.Name]; ok && e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		delete(d.dirs, e.Name) // the watch is gone with it
		return true
	}
	return d.real[e.Name] != nil || d.real[filepath.Dir(e.Name)] != nil || d.names[e.Name]
}

// file returns the path of the resource file whose content an event is about, and "" for one that
// can be about more: files that came, went or were exchanged by name, links, and other places.
func (d *dirWatch) file(e fsnotify.Event) string {
	name, of := filepath.Base(e.Name), d.real[filepath.Dir(e.Name)]
	if e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 || d.names[e.Name] || len(of) != 1 || !isResourceFile(name) {
		return ""
	}
	return filepath.Join(of[0], name)
}

// follow watches the places that the directories and the links in them depend on now. It reports
// whether there is a new one, where something may have happened before.
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
		// Adding what is watched already costs little and catches a directory that was replaced, of which
		// the event may be lost.
		id, err := d.add(dir)
		if err != nil {
			d.ok = false
			if !d.told {
				d.told = true
				d.log.Warn("a directory of resources cannot be watched and is polled instead", "dir", dir, "error", err)
			}
			continue
		}
		fresh = fresh || d.dirs[dir] != id
		d.dirs[dir] = id
	}
	for dir := range d.dirs {
		if !t.dirs[dir] {
			_ = d.w.Remove(dir) // it may have gone by itself
			delete(d.dirs, dir)
		}
	}
	return fresh
}

// add watches a directory and says which one it is.
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

// maxLinks is the number of symbolic links that are followed on one path, as the kernel does.
const maxLinks = 40

// walk follows path link by link. It notes every directory that holds a link or the end of the
// path, and returns the path without links, "" when something is missing; then the place where it
// would appear is noted.
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
