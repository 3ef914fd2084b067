package access_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestProcess checks that two connections of a process have its ID, that another process has
// another ID, and that the pidfd becomes readable when the process ends.
func TestProcess(t *testing.T) {
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 61001, Gid: 61002}
	}
	one, two := connected(t, attr), connected(t, nil)
	peer := peerOf(t, one.conn)
	first, second := access.ProcessOf(one.conn, peer), access.ProcessOf(one.conn, peer)
	other := access.ProcessOf(two.conn, peerOf(t, two.conn))
	if first == nil || second == nil || other == nil {
		t.Fatalf("unknown processes: %v %v %v", first, second, other)
	}
	if first.ID != second.ID || first.ID == other.ID || !strings.HasPrefix(first.ID, strconv.Itoa(int(peer.PID))+"/") {
		t.Errorf("IDs %q, %q, and %q; the process is %d", first.ID, second.ID, other.ID, peer.PID)
	}
	readable := func(wait int) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(first.Pidfd.Fd()), Events: unix.POLLIN}}, wait)
		return err == nil && n == 1
	}
	if readable(0) {
		t.Error("the process counts as ended")
	}
	if one.end(); !readable(20_000) {
		t.Error("the end is not reported")
	}
	if p := access.ProcessOf(one.conn, peer); p != nil {
		t.Errorf("a process that has ended: %+v", p)
	}
}
