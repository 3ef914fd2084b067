// Package outdir keeps the files of a directory that belongs to the watcher. A file is replaced
// atomically, so a reader never sees a part of it. Files that the watcher has not written are
// neither changed nor deleted.
//
// Files are not synced to the disk: the agent's store has the last good content of each file, and
// the watcher compares all files with the cluster when it starts.
package outdir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mark is the last line of each file. It follows the content, so that the line numbers in messages
// about a ConfigMap stay right.
const mark = "# Written by nearside-kubernetes from the Kubernetes API; changes of this file are overwritten.\n"

// maxFile limits the size of a file. Objects of Kubernetes have at most 1.5 MiB.
const maxFile = 4 << 20

// maxName is the maximum length of a file's name, which a temporary file extends.
const maxName = 240

// Marker is a file that the watcher creates when the files of a directory are complete for the first
// time, and never removes. So an agent knows an empty directory from one that is not mounted.
const Marker = ".nearside-kubernetes"

// temporary is the directory of files that are not complete yet, next to the directories of files. A
// reader that watches those sees one event for each file.
const temporary = ".new"

// Dir is a directory of files. It is not safe for concurrent use.
type Dir struct {
	path  string
	base  string
	root  *os.Root                     // of the parent
	files map[string][sha256.Size]byte // by name; only those with the mark
}

// Open creates the directory if necessary and reads the files that belong to the watcher.
func Open(path string) (*Dir, error) {
	d := &Dir{path: path, base: filepath.Base(path)}
	if err := d.Verify(); err != nil {
		if d.root != nil {
			err = errors.Join(err, d.root.Close())
		}
		return nil, fmt.Errorf("%w; make the directory accessible for the watcher's user", err)
	}
	return d, nil
}

// Close releases the directory. The files stay.
func (d *Dir) Close() error { return d.root.Close() }

// Verify reads all files, in case something else has changed them. It follows the path again if the
// parent has been replaced, and removes temporary files of an interrupted run.
func (d *Dir) Verify() error {
	if err := d.follow(); err != nil {
		return err
	}
	f, err := d.root.Open(d.base)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	d.files = make(map[string][sha256.Size]byte, len(names))
	for _, name := range names {
		if !strings.HasSuffix(name, ".yaml") || strings.HasPrefix(name, ".") {
			continue
		}
		text, err := d.read(name)
		if errors.Is(err, errForeign) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Join(d.path, name), err)
		}
		// An empty file is what a loss of power can leave of a file of the watcher.
		if len(text) == 0 || bytes.HasSuffix(text, []byte(mark)) {
			d.files[name] = sha256.Sum256(text)
		}
	}
	return nil
}

// follow opens the parent that is at the path now, and creates missing directories.
func (d *Dir) follow() error {
	parent := filepath.Dir(d.path)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	root, err := os.OpenRoot(parent)
	if err != nil {
		return err
	}
	if d.root != nil {
		if err := d.root.Close(); err != nil {
			return errors.Join(err, root.Close())
		}
	}
	d.root = root
	for _, name := range []string{d.base, temporary} {
		if err := root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// Only the last run of this directory can have left files with its name.
	f, err := root.Open(temporary)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, d.base+".") {
			if err := root.Remove(path.Join(temporary, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (d *Dir) in(name string) string { return path.Join(d.base, name) }

var errForeign = errors.New("not a file of the watcher")

func (d *Dir) read(name string) ([]byte, error) {
	st, err := d.root.Lstat(d.in(name))
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return nil, errForeign
	}
	f, err := d.root.Open(d.in(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// Names returns the names of all files of the watcher, sorted.
func (d *Dir) Names() []string { return slices.Sorted(maps.Keys(d.files)) }

// Put writes a file unless it has this content already. It reports whether it has written it.
func (d *Dir) Put(name string, content []byte) (bool, error) {
	if len(content)+len(mark)+1 > maxFile {
		return false, fmt.Errorf("%s would have %d bytes, at most %d are allowed; split the object",
			filepath.Join(d.path, name), len(content), maxFile)
	}
	text := make([]byte, 0, len(content)+len(mark)+1)
	text = append(text, content...)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, mark...)
	sum := sha256.Sum256(text)
	have, known := d.files[name]
	if known && have == sum {
		return false, nil
	}
	if !known {
		if _, err := d.root.Lstat(d.in(name)); err == nil {
			return false, fmt.Errorf("%s exists and is not a file of the watcher; move it to another directory",
				filepath.Join(d.path, name))
		}
	}
	if err := d.replace(name, text); err != nil {
		return false, err
	}
	d.files[name] = sum
	return true, nil
}

func (d *Dir) replace(name string, text []byte) (err error) {
	tmp := path.Join(temporary, d.base+"."+name)
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.root.Remove(tmp)
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o640) // whatever the umask is: the agent's group reads the file
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.root.Rename(tmp, d.in(name))
}

// Remove deletes a file of the watcher. It reports whether there was one.
func (d *Dir) Remove(name string) (bool, error) {
	if _, ok := d.files[name]; !ok {
		return false, nil
	}
	if err := d.root.Remove(d.in(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	delete(d.files, name)
	return true, nil
}

// Mark creates the [Marker] if it does not exist.
func (d *Dir) Mark() error {
	f, err := d.root.OpenFile(d.in(Marker), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// Name returns the name of the file of an object. Namespaces contain no dot, so different objects
// have different names. A name that is too long ends with a hash.
func Name(parts ...string) string {
	name := strings.Join(parts, ".")
	if len(name) > maxName-len(".yaml") {
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprintf("%s.%x", name[:maxName-len(".yaml")-33], sum[:16])
	}
	return name + ".yaml"
}
