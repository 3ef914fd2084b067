//go:build !linux

package xds

import (
	"errors"
	"net"
)

// unixPeer fails: who connected is only known on Linux.
func unixPeer(*net.UnixConn) (Peer, error) {
	return Peer{}, errors.New("peer credentials are only supported on Linux")
}
