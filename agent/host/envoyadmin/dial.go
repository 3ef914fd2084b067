package envoyadmin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// dial connects to the admin socket. The user can replace files in the directory at any time, so
// links are not followed, and the peer must be the process that has the xDS stream.
func (e Envoy) dial(ctx context.Context) (net.Conn, error) {
	if e.Socket != "" {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}
	path := filepath.Join(e.Dir, strconv.FormatUint(uint64(e.Peer.UID), 10), e.ID+".sock")
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && e.Peer.InPod() {
		return nil, access.ErrPodAdmin
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && e.Peer.InPod() {
		return nil, access.ErrPodAdmin
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Uid != e.Peer.UID {
		return nil, fmt.Errorf("%s is not a socket of uid %d", path, e.Peer.UID)
	}
	// connect to the checked file, even if its name has been reused
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		if errno := unix.Errno(0); errors.As(err, &errno) {
			err = errno // omit the path of the descriptor
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	who, err := access.PeerOf(c, false)
	if err == nil {
		err = checkPeers(who, e.Peer)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
