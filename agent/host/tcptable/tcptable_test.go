package tcptable_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/tcptable"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestRead finds sockets of this process, over IPv4 and IPv6, until they are closed.
func TestRead(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil && strings.HasPrefix(at, "[::1]") {
			continue // no IPv6
		}
		agenttest.Do(t, err)
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		agenttest.Do(t, err)
		local, remote := address(l.Addr()), address(c.LocalAddr())
		open := func() (bool, bool) {
			table, err := tcptable.Read("/proc", int32(os.Getpid()))
			agenttest.Do(t, err)
			return slices.Contains(table.Listening, local), slices.Contains(table.Open,
				tcptable.Conn{Local: local, Remote: remote})
		}
		if listening, accepted := open(); !listening || accepted {
			t.Errorf("%s: listening %v; %v before it is accepted", at, listening, accepted)
		}
		s, err := l.Accept()
		agenttest.Do(t, err)
		c.Close()
		if _, accepted := open(); !accepted {
			t.Errorf("%s: a connection that the client has closed is missing", at)
		}
		s.Close()
		if _, accepted := open(); accepted {
			t.Errorf("%s: a closed connection is open", at)
		}
	}
}

func address(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// TestInvalidTables checks that a table that cannot be read is an error.
func TestInvalidTables(t *testing.T) {
	root := t.TempDir()
	agenttest.Do(t, os.MkdirAll(filepath.Join(root, "7", "net"), 0o755))
	if _, err := tcptable.Read(root, 7); err == nil {
		t.Error("there is no table")
	}
	for text, want := range map[string]string{
		"": "", "  sl  local_address rem_address   st\n": "", "short line\n": "",
		"0: 0100007F:zz 0:0 0A 0 0 0 0 0 5 1\n":                 "not an address",
		"0: 0100007F:0050 00:0 01 0 0 0 0 0 5 1\n":              "not an address",
		"0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 5 1\n": "",
	} {
		agenttest.Do(t, os.WriteFile(filepath.Join(root, "7", "net", "tcp"), []byte(text), 0o600))
		if _, err := tcptable.Read(root, 7); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
