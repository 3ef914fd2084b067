package intercept

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// canaryTime is the time limit for a response of the resolver.
const canaryTime = 800 * time.Millisecond

// canaryServer returns port 53 of an unused loopback address, so that a canary that is not
// redirected does not leave the host. IPv6 has only one loopback address.
func canaryServer(v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.IPv6Loopback(), 53)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 53, 53, 53}), 53)
}

func loopback(v6 bool, port uint16) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.IPv6Loopback(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// Canary is the result of one query for the canary name.
type Canary struct {
	Family   string `json:"family"` // IPv4 or IPv6
	Protocol string `json:"protocol"`
	Server   string `json:"server"` // the address and port that it was sent to
	// Redirected reports whether the agent answered the query, although it was sent to another
	// server.
	Redirected bool   `json:"redirected"`
	Reason     string `json:"reason,omitempty"` // why it was not redirected
	// Unreachable reports that the namespace has no route to the server, so that no program can
	// query it.
	Unreachable bool `json:"unreachable,omitempty"`
}

// SendCanaries queries the canary name in a namespace as a user, over UDP and TCP: at an unused
// loopback address of both families, and at each server of the namespace's resolv.conf. The uid -1
// stands for the user of this process.
func SendCanaries(ctx context.Context, n *Namespace, uid int) ([]Canary, error) {
	servers := []netip.AddrPort{canaryServer(false), canaryServer(true)}
	if conf, _, err := n.ResolvConf(); err == nil { // otherwise the servers of programs are unknown
		for _, s := range nameServers(conf) {
			if !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
	}
	var out []Canary
	for _, s := range servers {
		for _, network := range []string{"udp", "tcp"} {
			out = append(out, Canary{Family: familyName(s.Addr().Is6()), Protocol: network, Server: s.String()})
		}
	}
	errs := make([]error, len(out))
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { errs[i] = out[i].send(ctx, n, uid, servers[i/2]) })
	}
	wg.Wait()
	return out, cmp.Or(errs...)
}

// send sends a canary. The error is not about the server.
func (c *Canary) send(ctx context.Context, n *Namespace, uid int, server netip.AddrPort) error {
	return n.Do(func() error {
		if uid >= 0 {
			runtime.LockOSThread() // the user belongs to the thread
			defer runtime.UnlockOSThread()
			back, err := becomeUser(uid)
			if err != nil {
				return err
			}
			defer back()
		}
		route, err := net.Dial("udp", server.String()) // sends nothing
		if c.Unreachable = err != nil; err == nil {
			_ = route.Close()
			err = ask(ctx, c.Protocol, server)
		}
		if c.Redirected = err == nil; err != nil {
			c.Reason = err.Error()
		}
		return nil
	})
}

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// becomeUser lets the thread open sockets as another user.
func becomeUser(uid int) (back func(), err error) {
	own, err := unix.SetfsuidRetUid(uid)
	if err != nil {
		return nil, err
	}
	if now, _ := unix.SetfsuidRetUid(-1); now != uid { // the call does not report errors
		return nil, explain(fmt.Errorf("ask as uid %d: %w", uid, syscall.EPERM), unix.CAP_SETUID)
	}
	return func() { _, _ = unix.SetfsuidRetUid(own) }, nil
}

// errNotOurs means that another server responded.
var errNotOurs = errors.New("another server responded")

// AskCanary queries a server for the canary name over "udp" or "tcp". It returns nil if an agent
// answered, and waits at most 800 ms.
func AskCanary(ctx context.Context, network string, at netip.AddrPort) error {
	return ask(ctx, network, at)
}

// ask queries a server for the canary name. It returns nil if the agent answered.
func ask(ctx context.Context, network string, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, canaryTime)
	defer cancel()
	d := net.Dialer{KeepAlive: -1}
	c, err := d.DialContext(ctx, network, at.String())
	if err != nil {
		return fmt.Errorf("ask %s over %s: %w", at, network, err)
	}
	defer c.Close()
	if err := exchange(ctx, c, network == "tcp"); err != nil {
		return fmt.Errorf("ask %s over %s: %w", at, network, err)
	}
	return nil
}

func setMark(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, Mark) }

// sendMarked sends a query with the agent's mark. It does not wait for a response.
func sendMarked(ctx context.Context, v6 bool) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = setMark(int(fd)) }), err)
	}}
	c, err := d.DialContext(ctx, "udp", canaryServer(v6).String())
	if err != nil {
		return explain(fmt.Errorf("set the mark of the agent's own queries: %w", err), unix.CAP_NET_ADMIN)
	}
	defer c.Close()
	_, err = c.Write(canaryQuery(uint16(rand.Uint32())))
	if errors.Is(err, unix.EPERM) { // a ruleset dropped the packet
		return nil
	}
	return err
}

// exchange sends a query over a connection, and reads the response.
func exchange(ctx context.Context, c net.Conn, stream bool) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(canaryTime)
	}
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	q := canaryQuery(uint16(rand.Uint32()))
	if stream {
		q = append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
	}
	if _, err := c.Write(q); err != nil {
		return err
	}
	b := make([]byte, 1232)
	if !stream {
		for {
			n, err := c.Read(b)
			if err != nil {
				return err
			}
			if n >= 2 && bytes.Equal(b[:2], q[:2]) { // otherwise it is a late response to an earlier query
				return checkCanary(q, b[:n])
			}
		}
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint16(b))
	if size > len(b) {
		return errNotOurs
	}
	if _, err := io.ReadFull(c, b[:size]); err != nil {
		return err
	}
	return checkCanary(q[2:], b[:size])
}

// canaryQuery returns a query for the address of the canary name.
func canaryQuery(id uint16) []byte {
	q := binary.BigEndian.AppendUint16(nil, id)
	q = append(q, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) // recursion desired, one question
	for label := range strings.SplitSeq(canaryName, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1) // type A, class IN
}

// checkCanary returns nil if a response is from the agent: it has the question, and one record
// with the canary address.
func checkCanary(q, reply []byte) error {
	tail := append([]byte{0, 4}, canaryAddr().AsSlice()...)
	if len(reply) < len(q)+len(tail) || !bytes.Equal(reply[:2], q[:2]) || reply[2]&0x80 == 0 || reply[3]&0x0f != 0 ||
		binary.BigEndian.Uint16(reply[6:]) != 1 || !bytes.Equal(reply[12:len(q)], q[12:]) || !bytes.HasSuffix(reply, tail) {
		return errNotOurs
	}
	return nil
}
