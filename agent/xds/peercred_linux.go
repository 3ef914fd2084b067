package xds

import (
	"net"

	"golang.org/x/sys/unix"
)

// unixPeer asks for the credentials that the peer had when it connected (SO_PEERCRED, unix(7)).
func unixPeer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if credErr != nil {
		return Peer{}, credErr
	}
	return Peer{Local: true, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}
