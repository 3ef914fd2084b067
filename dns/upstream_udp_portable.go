//go:build !linux || portable || !(amd64 || arm64)

package dns

import (
	"errors"
	"net"
	"syscall"
)

// datagrams sends and receives on a connected socket.
type datagrams struct {
	conn *net.UDPConn
	one  []byte
}

func newDatagrams(conn *net.UDPConn) (*datagrams, error) {
	return &datagrams{conn: conn, one: make([]byte, receiveSize+1)}, nil
}

// read waits for a datagram. It reports whether that was longer than b. An error of the network
// does not end the use of the socket.
func (d *datagrams) read(b []byte) (n int, cut bool, err error) {
	if n, err = d.conn.Read(d.one); err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) && errno != syscall.EBADF {
			return 0, false, errno
		}
		return 0, false, net.ErrClosed
	}
	return copy(b, d.one[:n]), n > len(b), nil
}

// write sends a datagram.
func (d *datagrams) write(b []byte) error {
	_, err := d.conn.Write(b)
	return err
}

// Close ends read.
func (d *datagrams) Close() error { return d.conn.Close() }
