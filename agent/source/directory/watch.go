package directory

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// dirWatch watches a directory and whatever decides what lies in it: the directories that hold the symbolic links on
// the way to it and to its files, the targets of those, and the nearest directory above while it is missing. Only
// directories are watched, since a watch on a file dies with every editor that replaces it.
type dirWatch struct {
	dir  string
	log  *slog.Logger
	w    *fsnotify.Watcher // nil: the system gives none
	ok   bool              // all places are watched
	told bool              // that they are not

	real  string           // dir without links; "" while it is missing
	dirs  map[string]dirID // watched
	names map[string]bool  // entries of other directories than real that matter
}

// dirID tells a directory from another one that took its place.
type dirID struct{ dev, ino uint64 }

func newDirWatch(o Options) *dirWatch {
	w, err := o.Watcher()
	if err != nil {
		o.Log.Warn("the resource directory cannot be watched and is polled instead; the limits are fs.inotify.max_user_instances and max_user_watches",
			"dir", o.Dir, "error", err)
		return &dirWatch{dir: o.Dir, log: o.Log}
	}
	return &dirWatch{dir: o.Dir, log: o.Log, w: w, dirs: map[string]dirID{}, names: map[string]bool{}}
}

// lost gives up a watcher that has ended by itself.
func (d *dirWatch) lost() {
	d.log.Warn("the watcher of the resource directory has ended; the directory is polled instead", "dir", d.dir)
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
	return d.real != "" && (e.Name == d.real || filepath.Dir(e.Name) == d.real) || d.names[e.Name]
}

// file returns the name of the resource file whose content an event is about, and "" for one that can be about more:
// files that came, went or were exchanged by name, links, and other places.
func (d *dirWatch) file(e fsnotify.Event) string {
	name := filepath.Base(e.Name)
	if e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 || d.names[e.Name] || filepath.Dir(e.Name) != d.real || !isResourceFile(name) {
		return ""
	}
	return name
}

// follow watches the places that the directory and the links in it depend on now. It reports whether there is a new
// one, where something may have happened before.
func (d *dirWatch) follow(links []string) bool {
	if d.w == nil {
		return false
	}
	t := trail{dirs: map[string]bool{}, names: map[string]bool{}}
	d.real = t.walk(d.dir)
	if d.real != "" {
		t.dirs[d.real] = true
	}
	for _, l := range links {
		t.walk(l)
	}
	d.names = t.names
	d.ok = true
	fresh := false
	for dir := range t.dirs {
		// Adding what is watched already costs little and catches a directory that was replaced, of which the event
		// may be lost.
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

// walk follows path link by link. It notes every directory that holds a link or the end of the path, and returns the
// path without links, "" when something is missing; then the place where it would appear is noted.
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
