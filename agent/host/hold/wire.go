package hold

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The protocol of a holder's socket has one message per request and response. A request has the
// version, the operation, and a name; opHold also passes a descriptor. A response has the
// version, the status, and a text; opTake also passes a descriptor if there is one.
const (
	version    = 1 // of the messages; a holder that does not know an operation refuses it
	socketName = "hold.sock"
	lockName   = "hold.lock"

	opHold    = 'h'
	opRelease = 'r'
	opTake    = 't'
	opList    = 'l' // returns the names after the given one, each followed by an LF, as many as fit
	opState   = 's' // returns the protocol and the number of FIFOs and sockets
	opQuit    = 'q' // ends a holder that nothing restarts, after another one has taken its files

	operations = "hrtlsq"

	statusOK     = 0
	statusFailed = 1

	maxMessage = 16 << 10
	maxHeld    = 4096
	maxConns   = 16
)

// request is a decoded request.
type request struct {
	op   byte
	name string
}

func decodeRequest(b []byte) (request, error) {
	switch {
	case len(b) < 2:
		return request{}, errors.New("the request is too short")
	case b[0] != version:
		return request{}, fmt.Errorf("the request has version %d; this holder supports %d", b[0], version)
	}
	r := request{op: b[1], name: string(b[2:])}
	switch {
	case !strings.ContainsRune(operations, rune(r.op)):
		return request{}, fmt.Errorf("the request has the unknown operation %q", r.op)
	case r.op == opList || r.op == opState || r.op == opQuit:
		return r, nil
	}
	return r, checkName(r.name)
}

// dial connects to the holder process of a run directory. It does not check whose process it is.
func dial(dir string) (*net.UnixConn, error) {
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", d, socketName) // a short path for any length of dir
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
}

// dialTrusted connects to the holder process of a run directory if this user or root runs it.
func dialTrusted(dir string) (*net.UnixConn, error) {
	c, err := dial(dir)
	if err != nil {
		return nil, err
	}
	if !trustedPeer(c) {
		c.Close()
		return nil, errors.New("it belongs to another user")
	}
	return c, nil
}

// trustedPeer reports whether the peer runs as this user or root.
func trustedPeer(c *net.UnixConn) bool {
	cred := peerOf(c)
	return cred != nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
}

func peerOf(c *net.UnixConn) (cred *unix.Ucred) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil
	}
	return cred
}

// errRefused is an error in a response: another attempt gets the same.
type errRefused struct{ text string }

func (e errRefused) Error() string { return e.text }

// exchange sends a request and reads the response. Unless the error is an errRefused, the
// connection cannot be used any more.
func exchange(c *net.UnixConn, op byte, name string, f *os.File) (text string, got *os.File, err error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	_ = c.SetDeadline(time.Now().Add(processCall))
	request := append([]byte{version, op}, name...)
	if f == nil {
		_, err = c.Write(request)
	} else {
		err = control(f, func(fd int) error {
			_, _, err := c.WriteMsgUnix(request, unix.UnixRights(fd), nil)
			return err
		})
	}
	n, oobn := 0, 0
	if err == nil {
		n, oobn, _, _, err = c.ReadMsgUnix(b, oob)
	}
	files := receivedFiles(oob[:oobn], name)
	defer func() {
		for _, x := range files {
			if x != got {
				x.Close()
			}
		}
	}()
	switch {
	case err != nil:
		return "", nil, err
	case n == 0:
		return "", nil, errors.New("the holder process has closed the connection")
	case n < 2 || b[0] != version:
		return "", nil, errors.New("the holder process has another protocol version; stop it, and the agent starts a new one")
	case b[1] != statusOK:
		return "", nil, errRefused{string(b[2:n])}
	}
	if len(files) == 1 {
		got = files[0]
	}
	return string(b[2:n]), got, nil
}

// receivedFiles returns the descriptors of a message.
func receivedFiles(oob []byte, name string) (out []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			out = append(out, os.NewFile(uintptr(fd), name))
		}
	}
	return out
}
