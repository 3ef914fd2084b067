package pods

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/hold"
)

// Link gives the file of a name in an open directory the same name in the directory of FIFOs of a
// pod. It replaces another file there, and does nothing if the name is that of the file already.
func (p *Pods) Link(uid, name string, from int) error {
	dir, err := p.links(uid)
	if err != nil {
		return err
	}
	defer dir.Close()
	to := int(dir.Fd())
	var have, want unix.Stat_t
	if err := unix.Fstatat(from, name, &want, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if unix.Fstatat(to, name, &have, unix.AT_SYMLINK_NOFOLLOW) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
		return nil
	}
	temp := "." + name + ".new"
	if err := unix.Unlinkat(to, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Linkat(from, name, to, temp, 0); err != nil {
		if errors.Is(err, unix.EXDEV) {
			return fmt.Errorf("%s is on another file system or mount than the FIFOs; set xds.pods to a directory of paths.run",
				p.o.Dir)
		}
		return fmt.Errorf("link it into the directory of its pod: %w", err)
	}
	return unix.Renameat(to, temp, to, name)
}

// Unlink removes what Link has made. A pod that is gone has no names.
func (p *Pods) Unlink(uid, name string) error {
	dir, err := p.links(uid)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// errGone means that a pod is not registered.
var errGone = errors.New("its pod is not registered in xds.pods; its lines wait until the CSI driver registers it")

// links opens or makes the directory of FIFOs of a pod.
func (p *Pods) links(uid string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.pods[uid]
	if x == nil {
		return nil, errGone
	}
	err := unix.Mkdirat(int(x.dir.Fd()), hold.FIFODir, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make the directory of its FIFOs: %w", err)
	}
	fd, err := unix.Openat(int(x.dir.Fd()), hold.FIFODir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of its FIFOs: %w", err)
	}
	f := os.NewFile(uintptr(fd), hold.FIFODir)
	var st unix.Stat_t
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
	case !p.trusts(st.Uid) || st.Mode&0o022 != 0:
		err = fmt.Errorf("the directory of its FIFOs belongs to uid %d with mode %04o; delete the pod", st.Uid,
			st.Mode&0o7777)
	case st.Mode&0o7777 != 0o755:
		err = f.Chmod(0o755) // regardless of the umask; only the pod sees it
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
