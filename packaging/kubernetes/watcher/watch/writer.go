package watch

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/cluster"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/outdir"
)

// writer brings the files in line with the cluster. One goroutine uses it.
type writer struct {
	world *cluster.World
	dirs  map[cluster.Group]*outdir.Dir
	log   *slog.Logger
	notes map[cluster.Item][]string
	fault string // why files could not be written; "" if they could
}

func newWriter(dir string, world *cluster.World, log *slog.Logger) (*writer, error) {
	w := &writer{world: world, dirs: map[cluster.Group]*outdir.Dir{}, log: log, notes: map[cluster.Item][]string{}}
	for _, g := range cluster.Groups() {
		d, err := outdir.Open(filepath.Join(dir, string(g)))
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.dirs[g] = d
	}
	return w, nil
}

func (w *writer) close() error {
	var errs []error
	for _, d := range w.dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// verify reads all files again, and marks them to be compared.
func (w *writer) verify() {
	for _, g := range cluster.Groups() {
		if err := w.dirs[g].Verify(); err != nil {
			w.failed(err)
		}
	}
	w.world.Refresh()
}

// apply writes the changed files. It returns false if it must be called again later.
func (w *writer) apply() bool {
	b := w.world.Take()
	if b.Empty() {
		return w.fault == ""
	}
	left := cluster.Batch{Items: map[cluster.Item]bool{}, Full: map[cluster.Group]bool{}, Kinds: map[string]bool{}}
	w.fault = ""
	w.items(slices.SortedFunc(maps.Keys(b.Items), cluster.Item.Compare), &left, false)
	for _, g := range cluster.Groups() {
		if b.Full[g] && !w.full(g, "", &left) {
			left.Full[g] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(b.Kinds)) {
		if !w.full(cluster.Policies, kind, &left) {
			left.Kinds[kind] = true
		}
	}
	w.world.Return(left)
	return left.Empty()
}

// full writes all files of a group or of a kind of custom resources, and deletes the others.
func (w *writer) full(g cluster.Group, kind string, left *cluster.Batch) bool {
	items := w.world.Items(g, kind)
	before := len(left.Items)
	w.items(items, left, true)
	if len(left.Items) > before {
		return false
	}
	if !w.done(w.dirs[g].Mark()) {
		return false
	}
	known := make(map[string]bool, len(items))
	for _, i := range items {
		known[i.File()] = true
	}
	prefix := ""
	if kind != "" {
		prefix = strings.ToLower(kind) + "."
	}
	for _, name := range w.dirs[g].Names() {
		if known[name] || !strings.HasPrefix(name, prefix) {
			continue
		}
		if !w.done(w.remove(g, name)) {
			return false
		}
	}
	return true
}

// slice is the number of files of a long list after which changes of pods come first.
const slice = 32

func (w *writer) items(list []cluster.Item, left *cluster.Batch, long bool) {
	for n, i := range list {
		if long && n%slice == slice-1 {
			urgent := w.world.TakePods()
			w.items(slices.SortedFunc(maps.Keys(urgent.Items), cluster.Item.Compare), left, false)
		}
		d, err := w.world.Render(i)
		if err == nil {
			w.note(i, d.Notes)
			if d.Text == nil {
				err = w.remove(i.Group, i.File())
			} else if changed, putErr := w.dirs[i.Group].Put(i.File(), d.Text); putErr != nil {
				err = putErr
			} else if changed {
				w.log.Debug("wrote a file", "group", i.Group, "file", i.File())
			}
		}
		if !w.done(err) {
			left.Items[i] = true
		}
	}
}

func (w *writer) remove(g cluster.Group, name string) error {
	gone, err := w.dirs[g].Remove(name)
	if gone {
		w.log.Debug("deleted a file", "group", g, "file", name)
	}
	return err
}

// done reports whether there is no error, and records the first one.
func (w *writer) done(err error) bool {
	if err != nil {
		w.failed(err)
	}
	return err == nil
}

func (w *writer) failed(err error) {
	if w.fault == "" {
		w.fault = err.Error()
		w.log.Error("cannot write a file; it is tried again", "error", err)
	}
}

// note logs the notes of an item when they change.
func (w *writer) note(i cluster.Item, notes []string) {
	if len(notes) == 0 {
		delete(w.notes, i)
		return
	}
	for _, n := range notes {
		if !slices.Contains(w.notes[i], n) {
			w.log.Warn(n)
		}
	}
	w.notes[i] = notes
}

// maxNotes limits the notes in the status.
const maxNotes = 100

// allNotes returns the notes of all items, sorted.
func (w *writer) allNotes() []string {
	var out []string
	for _, list := range w.notes {
		out = append(out, list...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if more := len(out) - maxNotes; more > 0 {
		out = append(out[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return out
}
