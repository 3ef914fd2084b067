package hold

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
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is the client of a holder process that runs [Serve]. It finds the process by its
// socket, or starts it. The holder process outlives the agent. If it crashes, run starts another
// one, which gets all files again.
type process struct {
	dir     string
	command []string
	pid     atomic.Int32 // 0 if no process is known to run

	mu    sync.Mutex // held during requests
	conn  *net.UnixConn
	tried time.Time // time of the last start without a response
	files map[string]*os.File
}

func newProcess(dir string, command []string) *process {
	if len(command) > 0 {
		command = append(slices.Clone(command), dir)
	}
	return &process{dir: dir, command: command, files: map[string]*os.File{}}
}

const (
	processStart = 10 * time.Second // time limit for a new process to respond
	restartDelay = time.Second / 2  // longest pause before another start, if the new process found an older one
	processCall  = 5 * time.Second
	processCheck = 5 * time.Second
)

// hold makes the process hold a file. It retains a copy for the next process.
func (p *process) hold(name string, f *os.File) error {
	own, err := duplicate(f)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.files[name]; old != nil {
		old.Close()
	}
	p.files[name] = own
	if p.conn == nil {
		return p.connect(true) // connect sends all files
	}
	_, _, err = p.call(opHold, name, own)
	return err
}

// forget releases a file of the process. It does not start the process.
func (p *process) release(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.files[name]; f != nil {
		f.Close()
		delete(p.files, name)
	}
	if p.connect(false) != nil {
		return nil // a process that does not run holds nothing
	}
	_, _, err := p.call(opRelease, name, nil)
	return err
}

// take returns a copy of a held file, or nil.
func (p *process) take(name string) *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connect(false) != nil {
		return nil
	}
	_, f, err := p.call(opTake, name, nil)
	if err != nil {
		return nil
	}
	return f
}

// names returns the sorted names of the held files.
func (p *process) names() (out []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connect(false) != nil {
		return nil, nil
	}
	for after := ""; ; after = out[len(out)-1] {
		text, _, err := p.call(opList, after, nil)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return out, nil
		}
		out = append(out, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	}
}

// String describes the holder, for the status.
func (p *process) String() string {
	if pid := p.pid.Load(); pid > 0 {
		return fmt.Sprintf("nearside hold (pid %d)", pid)
	}
	return "nearside hold (not running)"
}

// run checks the process until ctx ends, and restarts it if necessary.
func (p *process) run(ctx context.Context) {
	tick := time.NewTicker(processCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.close()
			return
		case <-tick.C:
			_ = p.check() // String reports the error
		}
	}
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect()
	for _, f := range p.files {
		f.Close()
	}
	clear(p.files)
}

// check starts another process if the current one does not respond.
func (p *process) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.files) == 0 {
		return nil
	}
	if err := p.connect(true); err != nil {
		return err
	}
	if _, _, err := p.call(opList, "\xff", nil); err == nil {
		return nil
	}
	return p.connect(true)
}

// connect finds or starts the process. It sends all files to a new process.
func (p *process) connect(start bool) error {
	if p.conn != nil {
		return nil
	}
	err := p.dial()
	// each file would cause an attempt
	if err != nil && start && len(p.command) > 0 && time.Since(p.tried) >= processCheck {
		if err = p.start(); err != nil {
			p.tried = time.Now()
		}
	}
	if err != nil {
		return fmt.Errorf("cannot connect to the holder process at %s/%s: %w; run nearside hold --dir %s",
			p.dir, socketName, err, p.dir)
	}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if _, _, err := p.call(opHold, name, p.files[name]); err != nil {
			return fmt.Errorf("hold %s: %w", name, err)
		}
	}
	return nil
}

func (p *process) dial() error {
	d, err := unix.Open(p.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", d, socketName) // a short path for any length of dir
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return err
	}
	if !trustedPeer(c) {
		c.Close()
		return errors.New("it belongs to another user")
	}
	p.conn = c
	p.pid.Store(peerOf(c).Pid)
	return nil
}

func (p *process) disconnect() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
		p.pid.Store(0)
	}
}

// start starts the process in its own session, so that signals for this process do not reach it.
// A process that finds another holder ends, and start tries again.
func (p *process) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), processStart)
	defer cancel()
	ended, err := p.spawn()
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for pause := 10 * time.Millisecond; ; {
		err := p.dial()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", strings.Join(p.command, " "), err)
		case <-tick.C:
			continue
		case failed := <-ended:
			if failed != nil || pause > restartDelay {
				return fmt.Errorf("%s has ended (%v): %w", strings.Join(p.command, " "), failed, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
		if ended, err = p.spawn(); err != nil {
			return err
		}
	}
}

// spawn runs the process. The channel receives its exit error.
func (p *process) spawn() (ended chan error, err error) {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"GOMAXPROCS=1", "GOMEMLIMIT=16MiB"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends after this process, or crashes
	return ended, nil
}

// call sends a request and reads the response. It closes the connection after an error.
func (p *process) call(op byte, name string, f *os.File) (text string, got *os.File, err error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	_ = p.conn.SetDeadline(time.Now().Add(processCall))
	request := append([]byte{version, op}, name...)
	if f == nil {
		_, err = p.conn.Write(request)
	} else {
		err = control(f, func(fd int) error {
			_, _, err := p.conn.WriteMsgUnix(request, unix.UnixRights(fd), nil)
			return err
		})
	}
	n, oobn := 0, 0
	if err == nil {
		n, oobn, _, _, err = p.conn.ReadMsgUnix(b, oob)
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
		p.disconnect()
		return "", nil, err
	case n < 2 || b[0] != version:
		p.disconnect()
		return "", nil, errors.New("the holder process has another protocol version; stop it, and the agent starts a new one")
	case b[1] != statusOK:
		return "", nil, errors.New(string(b[2:n]))
	}
	if len(files) == 1 {
		got = files[0]
	}
	return string(b[2:n]), got, nil
}
