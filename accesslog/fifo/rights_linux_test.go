package fifo

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPipeWithoutFOwner checks that root with CAP_CHOWN alone gives FIFOs to their writers, and
// that it repairs the mode of one.
func TestPipeWithoutFOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to other users")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	fd := func() int {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ps := &Pipes{opts: Options{Dir: dir, Group: -1}}
	for _, mode := range []uint32{0o600, 0o666} {
		if err := os.Chmod(path, os.FileMode(mode)); err != nil {
			t.Fatal(err)
		}
		f, done := fd(), make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with its rights
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			err := unix.Capget(&header, &data[0])
			if err == nil {
				data[0].Effective &^= 1 << unix.CAP_FOWNER
				err = unix.Capset(&header, &data[0])
			}
			if err == nil {
				err = ps.setOwner(f, Pipe{Path: path, UID: 5678, GID: -1})
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatalf("mode %04o: %v", mode, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(f, &st); err != nil || st.Uid != 5678 || st.Gid != uint32(os.Getegid()) ||
			st.Mode&0o7777 != 0o260 {
			t.Errorf("mode %04o: owner %d, group %d, mode %04o, %v", mode, st.Uid, st.Gid, st.Mode&0o7777, err)
		}
	}
}
