// Package standby answers DNS queries for a server that does not read its sockets, because it
// hangs. The process with copies of the sockets calls [Watch.Look] regularly. Queries over UDP get
// SERVFAIL, and connections over TCP are closed: clients then use their next server at once,
// instead of after a timeout.
//
// It takes nothing from a server that reads: a query is answered only if it is the first of its
// socket in successive looks. If the server takes the first query itself, it is not hung but slow,
// and the queries of this socket wait again.
package standby

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/table"
)

// HungAfter is how long a query or a connection waits by default before the server counts as hung.
// It is longer than the pauses of a server that works. With the interval of looks, it is shorter
// than the timeout of resolvers (5 s).
const HungAfter = 2 * time.Second

const (
	// quietAfter ends the state if no query was answered: the server may work again.
	quietAfter = 10 * time.Second
	// hungEvery is the interval of looks while the server hangs. A query waits for two looks.
	hungEvery = 25 * time.Millisecond

	// most bounds the messages of a socket in one look.
	most = 512
	// shown is how many bytes of a message are compared.
	shown = 64
)

// Watch watches the sockets of a server. It is not safe for concurrent use.
type Watch struct {
	after   time.Duration
	sockets map[string]*socket
	last    time.Time // of the last answer
	hung    bool
	total   int
	query   table.Query
	in, out []byte
	oob     [128]byte
}

// socket is the state of a socket.
type socket struct {
	since time.Time // when the first message was seen; zero: nothing waits
	from  string
	head  []byte // the start of the message
	reads bool   // the server has read one since it counts as hung, so its queries get the full time
}

// New returns a Watch for which a server hangs if a query waits for a time, such as [HungAfter].
func New(after time.Duration) *Watch { return &Watch{after: after, sockets: map[string]*socket{}} }

// Hung reports whether the server hangs, and returns how many queries were answered and connections
// closed for it the last time.
func (w *Watch) Hung() (hung bool, answered int) { return w.hung, w.total }

// Look examines the sockets of the server, by any name, and answers for it if it hangs. It returns
// the time until the next look. It does not block.
func (w *Watch) Look(now time.Time, files map[string]*os.File) time.Duration {
	for name := range w.sockets {
		if files[name] == nil {
			delete(w.sockets, name)
		}
	}
	if w.hung && (len(files) == 0 || now.Sub(w.last) >= quietAfter) {
		w.hung = false
	}
	next := w.after / 2
	for name, f := range files {
		s := w.sockets[name]
		if s == nil {
			s = &socket{}
			w.sockets[name] = s
		}
		raw, err := f.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) { w.look(now, int(fd), s) })
		if !s.since.IsZero() {
			next = w.after / 8
		}
	}
	if w.hung {
		next = min(next, hungEvery)
	}
	return next
}

func (w *Watch) look(now time.Time, fd int, s *socket) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return
	}
	stream := kind == unix.SOCK_STREAM
	if !w.waits(now, fd, stream, s) {
		return
	}
	if after := now.Sub(s.since); after < w.after && (!w.hung || s.reads || after == 0) {
		return
	}
	if !w.hung {
		w.hung, w.total = true, 0
		for _, other := range w.sockets {
			other.reads = false
		}
	}
	w.last, s.since, s.reads = now, time.Time{}, false
	for range most {
		if stream && !closeNext(fd) || !stream && !w.answerNext(fd) {
			return
		}
		w.total++
	}
}

// waits reports whether the same message, or any connection, waits since the last look.
func (w *Watch) waits(now time.Time, fd int, stream bool, s *socket) bool {
	from, head := "", []byte(nil)
	if stream {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Unacked == 0 { // the connections to accept, for a listening socket
			s.since = time.Time{}
			return false
		}
	} else {
		n, sender, err := unix.Recvfrom(fd, w.buffer(), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != nil || sender == nil {
			s.reads = s.reads || !s.since.IsZero()
			s.since = time.Time{}
			return false
		}
		from, head = senderText(sender), w.in[:min(n, shown)]
	}
	if s.since.IsZero() || s.from != from || !bytes.Equal(s.head, head) {
		s.reads = s.reads || !s.since.IsZero()
		s.since, s.from, s.head = now, from, append(s.head[:0], head...)
	}
	return true
}

func senderText(a unix.Sockaddr) string {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return string(a.Addr[:]) + string(rune(a.Port))
	case *unix.SockaddrInet6:
		return string(a.Addr[:]) + string(rune(a.Port))
	}
	return ""
}

// maxQuery is the maximum length of a query over UDP.
const maxQuery = 4096

func (w *Watch) buffer() []byte {
	if w.in == nil {
		w.in = make([]byte, maxQuery)
	}
	return w.in
}

// answerNext answers the next message with SERVFAIL, or discards it if it is no query. It returns
// false if none waits.
func (w *Watch) answerNext(fd int) bool {
	n, oobn, flags, sender, err := unix.Recvmsg(fd, w.buffer(), w.oob[:], unix.MSG_DONTWAIT)
	if err != nil {
		return false
	}
	if sender == nil || flags&unix.MSG_TRUNC != 0 {
		return true
	}
	m := w.in[:n]
	verdict, rcode := w.query.Read(m)
	if verdict == table.Dropped {
		return true
	}
	if verdict == table.Accepted {
		rcode = table.RcodeServFail
	}
	w.out = w.query.Refuse(w.out[:0], m, rcode)
	anyInterface(w.oob[:oobn])
	// A reply that cannot be sent is lost, as packets may be.
	_ = unix.Sendmsg(fd, w.out, w.oob[:oobn], sender, unix.MSG_DONTWAIT)
	return true
}

// anyInterface removes the interface from the control message of a query over IPv4. The message
// also has the address that the query was sent to, which becomes the source of the reply.
func anyInterface(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 4 {
			clear(m.Data[:4])
		}
	}
}

// closeNext closes the next connection. It returns false if none waits.
func closeNext(fd int) bool {
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		return false // the server may take the connection first
	}
	c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return false
	}
	_ = unix.Close(c)
	return true
}
