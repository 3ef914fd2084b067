package otlp

import (
	"net"

	"golang.org/x/sys/unix"
)

// unixPeer returns the credentials of the process that opened a connection.
func unixPeer(conn *net.UnixConn) Peer {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(
		func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil ||
		failed != nil {
		return Peer{}
	}
	return Peer{Known: true, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
}
