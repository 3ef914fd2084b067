package fifo

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation/dirs"
)

const (
	pipeDirMode    = 0o711 // lets all writers reach their FIFOs
	privateDirMode = 0o700 // writers reach their FIFOs by Options.Links
)

// openPipeDir opens or creates the directory of FIFOs, and locks it.
func openPipeDir(o *Options) (*dirs.Dir, error) {
	mode, check := uint32(pipeDirMode), checkPipeDir
	if o.Private {
		mode, check = privateDirMode, checkPrivateDir
	}
	d, err := dirs.Open(dirs.Options{Path: o.Dir, Kind: "FIFO directory", Mode: mode, Group: -1, Roots: o.Roots,
		Check: check})
	if err != nil {
		return nil, err
	}
	return lockPipeDir(d)
}

func lockPipeDir(d *dirs.Dir) (*dirs.Dir, error) {
	if err := unix.Flock(d.FD(), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(
			fmt.Errorf("%s is in use by another process; stop it or set another directory", d.Path()), d.Close())
	}
	return d, nil
}

// checkPipeDir returns the mode that the directory needs, and why it is not safe.
func checkPipeDir(path string, st *unix.Stat_t) (uint32, error) {
	mode := uint32(st.Mode) & 0o7777
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return mode, fmt.Errorf("%s belongs to user %d, who could replace its FIFOs; use a directory of this user (%d) "+
			"or of root", path, st.Uid, os.Geteuid())
	case mode&unix.S_ISVTX != 0:
		return mode, fmt.Errorf("%s has mode %04o: the kernel may refuse FIFOs of other users in a sticky directory; "+
			"run chmod -t %s", path, mode, path)
	case mode&0o022 != 0:
		return mode, fmt.Errorf("%s has mode %04o, so other users can replace its FIFOs; run chmod go-w %s",
			path, mode, path)
	case mode&0o011 != 0o011: // a new directory too, depending on the umask
		return mode | pipeDirMode, nil
	}
	return mode, nil
}

// checkPrivateDir is checkPipeDir for a directory that only this user may reach.
func checkPrivateDir(path string, st *unix.Stat_t) (uint32, error) {
	_, err := checkPipeDir(path, st)
	return privateDirMode, err
}

// checkDirectory compares the directory at the path with the open one. If it is another one,
// checkDirectory opens or creates it; then the FIFOs are made again there. ps.change is held.
func (ps *Pipes) checkDirectory() {
	result, err := ps.in.Compare()
	if result == dirs.Other {
		err = ps.replaceDirectory()
	}
	ps.mu.Lock()
	known := ps.dirErr != nil
	ps.dirErr = err
	if err == nil && result != dirs.Same {
		ps.dirChanges++
	}
	ps.mu.Unlock()
	if err != nil && !known {
		ps.opts.Log.Error("cannot use the directory of the FIFOs", "dir", ps.opts.Dir, "error", err)
	}
}

func (ps *Pipes) replaceDirectory() error {
	next, err := ps.in.Reopen()
	if err == nil {
		next, err = lockPipeDir(next)
	}
	if err != nil {
		return err
	}
	before := ps.in
	ps.in, ps.dir = next, next.FD()
	ps.opts.Log.Warn("the directory of the FIFOs was removed or replaced; it was opened again", "dir", ps.opts.Dir)
	return before.Close()
}
