package accesslog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HoldProcess is a [Holder] by a process of its own, which [ServeHold] runs. It is found by its socket, or started, and
// outlives this one. Where it crashes, another one is started and gets all descriptors again, as long as Run runs.
type HoldProcess struct {
	dir     string
	command []string

	mu    sync.Mutex
	conn  *net.UnixConn
	pid   int32
	files map[string]*os.File
}

// NewHoldProcess returns a holder for the socket in dir. command, with its arguments, is what is started where nobody serves
// it: the path of this program, "hold", "--dir" and dir; empty: nothing is started, and somebody else has to run it.
func NewHoldProcess(dir string, command []string) *HoldProcess {
	return &HoldProcess{dir: dir, command: command, files: map[string]*os.File{}}
}

const (
	holdStart = 10 * time.Second // until a process that was started answers
	holdCall  = 5 * time.Second
)

// Hold implements Holder.
func (h *HoldProcess) Hold(path string, f *os.File) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[path] = f
	if err := h.connect(); err != nil { // which holds all anew
		return err
	}
	_, err := h.call(opHold, path, f)
	return err
}

// Release implements Holder.
func (h *HoldProcess) Release(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.files, path)
	if err := h.connect(); err != nil {
		return err
	}
	_, err := h.call(opRelease, path, nil)
	return err
}

// Held implements Holder.
func (h *HoldProcess) Held() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.connect(); err != nil {
		return nil, err
	}
	var out []string
	for after := ""; ; after = out[len(out)-1] {
		text, err := h.call(opList, after, nil)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return out, nil
		}
		out = append(out, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	}
}

func (h *HoldProcess) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return "nearside hold (not running)"
	}
	return fmt.Sprintf("nearside hold (pid %d)", h.pid)
}

// Run sees to it that the process is there until the context ends.
func (h *HoldProcess) Run(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.mu.Lock()
			h.disconnect()
			h.mu.Unlock()
			return nil
		case <-tick.C:
			h.Check()
		}
	}
}

// Check asks the process whether it is there, and starts another one where it is not.
func (h *HoldProcess) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.files) == 0 {
		return nil
	}
	if err := h.connect(); err != nil {
		return err
	}
	if _, err := h.call(opList, "/\xff", nil); err == nil {
		return nil
	}
	return h.connect()
}

// connect finds or starts the process, and gives it all descriptors where it is not the one that had them.
func (h *HoldProcess) connect() error {
	if h.conn != nil {
		return nil
	}
	err := h.dial()
	if err != nil && len(h.command) > 0 {
		err = h.start()
	}
	if err != nil {
		return fmt.Errorf("the process that holds FIFOs cannot be reached at %s/%s: %w; run nearside hold --dir %s", h.dir, holdSocket, err, h.dir)
	}
	for _, path := range slices.Sorted(maps.Keys(h.files)) {
		if _, err := h.call(opHold, path, h.files[path]); err != nil {
			return fmt.Errorf("hold %s: %w", path, err)
		}
	}
	return nil
}

func (h *HoldProcess) dial() error {
	d, err := unix.Open(h.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", d, holdSocket)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return err
	}
	if !trustedPeer(c) {
		c.Close()
		return errors.New("it belongs to another user")
	}
	h.conn, h.pid = c, holdPeerOf(c).Pid
	return nil
}

func (h *HoldProcess) disconnect() {
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// start starts the process in a session of its own, so that what ends this one does not reach it.
func (h *HoldProcess) start() error {
	cmd := exec.Command(h.command[0], h.command[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"GOMAXPROCS=1", "GOMEMLIMIT=16MiB"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // it ends after this process, or crashes
	ctx, cancel := context.WithTimeout(context.Background(), holdStart)
	defer cancel()
	for {
		err := h.dial()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", strings.Join(h.command, " "), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// call sends a request and reads its answer. After an error of the connection there is none any more.
func (h *HoldProcess) call(op byte, path string, f *os.File) (string, error) {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	b := make([]byte, maxHoldMessage)
	_ = h.conn.SetDeadline(time.Now().Add(holdCall))
	_, _, err := h.conn.WriteMsgUnix(append([]byte{holdVersion, op}, path...), rights, nil)
	n := 0
	if err == nil {
		n, err = h.conn.Read(b)
	}
	switch {
	case err != nil:
		h.disconnect()
		return "", err
	case n < 2 || b[0] != holdVersion:
		h.disconnect()
		return "", errors.New("the process that holds FIFOs speaks another version; stop it, and it is started anew")
	case b[1] != holdOK:
		return "", errors.New(string(b[2:n]))
	}
	return string(b[2:n]), nil
}
