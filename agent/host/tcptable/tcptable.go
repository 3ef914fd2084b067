// Package tcptable reads the TCP sockets of a process's network namespace from /proc. That requires
// no privileges. The kernel lists sockets of the namespace, not of the process.
package tcptable

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxSockets limits the sockets of a table.
const maxSockets = 1 << 18

// Conn identifies a connection in its network namespace.
type Conn struct{ Local, Remote netip.AddrPort }

// Table has the sockets of a network namespace. IPv4 addresses of IPv6 sockets are IPv4 addresses.
type Table struct {
	Listening []netip.AddrPort
	// Open are the connections that a process has, closed by one side at most. Connections that no
	// process has accepted yet are not among them.
	Open []Conn
}

// Read returns the table of a process. root is the directory of the proc file system.
func Read(root string, pid int32) (*Table, error) {
	t := &Table{}
	for i, name := range []string{"tcp", "tcp6"} {
		path := filepath.Join(root, strconv.Itoa(int(pid)), "net", name)
		f, err := os.Open(path)
		if i > 0 && errors.Is(err, fs.ErrNotExist) {
			continue // the kernel has no IPv6
		}
		if err == nil {
			err = t.add(f)
			f.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return t, nil
}

// States of sockets in the table.
const (
	established = "01"
	finWait1    = "04"
	finWait2    = "05"
	closeWait   = "08"
	listening   = "0A"
)

// add adds the sockets of a file.
func (t *Table) add(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[0] == "sl" {
			continue
		}
		if len(t.Open)+len(t.Listening) >= maxSockets {
			return fmt.Errorf("has more than %d sockets", maxSockets)
		}
		local, err := Address(f[1])
		if err != nil {
			return err
		}
		switch state, inode := f[3], f[9]; {
		case state == listening:
			t.Listening = append(t.Listening, local)
		case inode == "0" || !slices.Contains([]string{established, finWait1, finWait2, closeWait}, state):
		default:
			remote, err := Address(f[2])
			if err != nil {
				return err
			}
			t.Open = append(t.Open, Conn{local, remote})
		}
	}
	return lines.Err()
}

// Address parses an address of the table: words in the byte order of the machine, and the port.
func Address(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%.64q is not an address", text)
	}
	if littleEndian {
		for word := range slices.Chunk(b, 4) {
			slices.Reverse(word)
		}
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}

// littleEndian is the byte order of the machine.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
