//go:build !linux

package inspect

import (
	"errors"
	"net"
)

// unixPeer fails: who connected is only known on Linux, so nobody may write elsewhere.
func unixPeer(*net.UnixConn) (peer, error) {
	return peer{}, errors.New("peer credentials are only supported on Linux")
}
