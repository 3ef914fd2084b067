package resolver_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestMark: the agent's queries have the mark if the agent may set it.
func TestMark(t *testing.T) {
	n := newNode(t, oneMesh)
	r, err := resolver.New(resolver.Options{Config: n.cfg, Last: n.last.Load, Mark: 7})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var may error
	agenttest.Do(t, raw.Control(func(fd uintptr) {
		may = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, 7)
	}))
	if got := r.State().Marked; got != (may == nil) {
		t.Errorf("marked: %v, and setting a mark: %v", got, may)
	}
}
