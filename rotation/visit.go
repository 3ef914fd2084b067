package rotation

import (
	"fmt"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Stored is a file with lines of an active file.
type Stored struct {
	Path    string
	Rotated time.Time // from the name of a backup; zero for the active file
	Size    int64     // in bytes; of a compressed file, its own size
	Err     error     // the file cannot be opened
}

// Visit calls visit for the backups of a file, oldest first, and then for the active file if it
// exists. newest limits the number of backups to the newest ones; negative: all. content is the
// uncompressed content, nil if Stored.Err is set, and an io.ReadSeeker for plain files.
//
// Other processes may write and rotate the file meanwhile: each file is visited once, and backups
// that they remove are left out. Visit takes no locks, follows no links, and returns the first
// error of visit. The error is fs.ErrNotExist if there is neither a file nor a backup.
func Visit(path string, newest int, visit func(s Stored, content io.Reader) error) error {
	if err := (Options{Path: path}).Validate(); err != nil {
		return err
	}
	d, err := openToRead(path)
	if err != nil {
		return err
	}
	defer d.close()
	// The active file is opened first. If it becomes a backup before the directory is listed, it is
	// visited as that backup, in its order, and the new active file is left out.
	active, failed := d.openRead(d.names.base)
	if active != nil {
		defer active.f.Close()
	}
	backups, err := d.scanTwice()
	if err != nil {
		return err
	}
	if newest >= 0 && len(backups) > newest {
		backups = backups[len(backups)-newest:]
	}
	if isGone(failed) && len(backups) == 0 {
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	rotated := false
	for _, b := range backups {
		same, err := d.visitBackup(b, active, visit)
		if err != nil {
			return err
		}
		rotated = rotated || same
	}
	switch {
	case rotated:
		return nil
	case active != nil:
		return visitSource(active, Stored{Path: path}, visit)
	case isGone(failed):
		return nil
	}
	return visit(Stored{Path: path, Err: failed}, nil)
}

// visitBackup visits a backup, and reports whether it was the active file.
func (d *listing) visitBackup(b backup, active *source, visit func(Stored, io.Reader) error) (same bool, err error) {
	s, err := d.openBackup(b)
	out := Stored{Path: d.join(d.names.backup(b.stamp)), Rotated: time.UnixMilli(b.stamp).UTC()}
	switch {
	case isGone(err):
		return false, nil
	case err != nil:
		out.Err = err
		return false, visit(out, nil)
	}
	defer s.f.Close()
	out.Path = s.f.Name()
	return active != nil && s.dev == active.dev && s.ino == active.ino, visitSource(s, out, visit)
}

func visitSource(s *source, out Stored, visit func(Stored, io.Reader) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.f.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", out.Path, err)
	}
	out.Size = st.Size
	if s.zip != nil {
		return visit(out, s)
	}
	return visit(out, s.f)
}

// Read reads the content of a file.
func (s *source) Read(p []byte) (int, error) { return s.read(p) }
