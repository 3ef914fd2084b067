package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is the client of a holder process that runs [Serve]. It finds the process by its socket,
// or starts it. The holder process outlives the agent. When it ends, run passes all files to the
// next one.
type process struct {
	dir     string
	command []string

	mu    sync.Mutex // held during requests
	conn  *net.UnixConn
	stay  bool      // the connected process has [ServeOptions.Stay]
	tried time.Time // time of the last start without a response
	other time.Time // time when a process that this one has not started was last connected
	files map[string]*os.File

	state sync.Mutex // held only briefly; taken after mu
	pid   int        // of the connected process; 0: none, or in another PID namespace
	child int        // pid of the process that this one started last
	held  map[string]bool
}

func newProcess(dir string, command []string) *process {
	if len(command) > 0 {
		command = append(slices.Clone(command), dir)
	}
	return &process{dir: dir, command: command, files: map[string]*os.File{}, held: map[string]bool{}}
}

const (
	processStart = 10 * time.Second // time limit for a new process to respond
	restartDelay = time.Second / 2  // longest pause before another start, if the new process found an older one
	processCall  = 5 * time.Second
	processCheck = 5 * time.Second

	// supervised is how long the agent waits for the restart of a process that it has not started,
	// before it starts one. The service manager or the container runtime restarts its process.
	supervised = 5 * time.Second

	reconnectFirst, reconnectMost = 5 * time.Millisecond, time.Second // pauses between attempts

	// patience is how long a request waits for another process when the connected one ends.
	patience = time.Second
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
	p.note(name, false)
	var refused errRefused
	for end := time.Now().Add(patience); ; <-time.After(reconnectFirst) {
		connected := p.conn != nil
		if connected {
			err = p.send(name)
		} else {
			err = p.connect(!supervisedOnly(name)) // sends all files
		}
		if supervisedOnly(name) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) {
			return nil // no process runs; run passes the file to the first supervised one
		}
		// a process that has ended may be replaced in a moment
		final := err == nil || supervisedOnly(name) || errors.As(err, &refused) || !connected && !p.restarts()
		if final || time.Now().After(end) {
			return err
		}
	}
}

// send makes the connected process hold a file, unless that is for a supervised one only.
func (p *process) send(name string) error {
	if supervisedOnly(name) && !p.stay {
		return nil
	}
	_, _, err := p.call(opHold, name, p.files[name])
	p.note(name, err == nil)
	return err
}

// note records whether the connected process holds a file.
func (p *process) note(name string, held bool) {
	p.state.Lock()
	defer p.state.Unlock()
	if delete(p.held, name); held {
		p.held[name] = true
	}
}

// release releases a file of the process. It does not start the process.
func (p *process) release(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.files[name]; f != nil {
		f.Close()
		delete(p.files, name)
	}
	p.note(name, false)
	if p.reach() != nil {
		return nil // a process that does not run holds nothing
	}
	_, _, err := p.call(opRelease, name, nil)
	return err
}

// take returns a copy of a held file, or nil.
func (p *process) take(name string) *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach() != nil {
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
	if p.reach() != nil {
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

// by describes the process if it holds a file, and returns "" otherwise.
func (p *process) by(name string) string {
	p.state.Lock()
	defer p.state.Unlock()
	switch {
	case !p.held[name]:
		return ""
	case p.pid > 0:
		return fmt.Sprintf("nearside hold (pid %d)", p.pid)
	}
	return "nearside hold"
}

// run passes the files to another process whenever the current one ends, until ctx ends.
func (p *process) run(ctx context.Context) {
	defer p.close()
	pause := reconnectFirst
	for ctx.Err() == nil {
		watched, err := p.check()
		if watched != nil {
			pause = reconnectFirst
			end := context.AfterFunc(ctx, func() { watched.Close() })
			_ = watched.SetReadDeadline(time.Now().Add(processCheck))
			_, _ = watched.Read(make([]byte, 1)) // returns when the process ends
			end()
			watched.Close()
			continue
		}
		wait := processCheck // there is nothing to hold
		if err != nil {
			wait, pause = pause, min(2*pause, reconnectMost)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// close closes the connection and the copies of all files. The process holds its files further.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
	for _, f := range p.files {
		f.Close()
	}
	clear(p.files)
}

// check connects to another process if the current one does not respond, and returns a separate
// connection that ends with the process. It returns nil if nothing is to be held.
func (p *process) check() (*net.UnixConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := false
	for name := range p.files {
		start = start || !supervisedOnly(name)
	}
	if len(p.files) == 0 && p.conn == nil {
		return nil, nil
	}
	if p.conn != nil {
		_, _, _ = p.call(opList, "\xff", nil) // disconnects after an error
	}
	var refused errRefused
	if err := p.connect(start); err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	c, err := dialTrusted(p.dir)
	if err != nil {
		p.disconnect()
	}
	return c, err
}

// restarts reports whether a process that this one has not started ended a moment ago.
func (p *process) restarts() bool { return time.Since(p.other) < supervised }

// connect finds or starts the process. It sends all files to a new process.
func (p *process) connect(start bool) error {
	if p.conn != nil {
		return nil
	}
	err := p.dial()
	// each file would cause an attempt
	if err != nil && start && !p.restarts() && len(p.command) > 0 && time.Since(p.tried) >= processCheck {
		if err = p.start(); err != nil {
			p.tried = time.Now()
		}
	}
	if err != nil {
		return fmt.Errorf("cannot connect to the holder process at %s/%s: %w; run nearside hold --dir %s",
			p.dir, socketName, err, p.dir)
	}
	text, _, err := p.call(opState, "", nil) // an old process refuses it
	state, _ := parseState(text)
	if p.stay = err == nil && state.Stay; p.conn == nil {
		return fmt.Errorf("the holder process has ended: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if err := p.send(name); err != nil {
			errs = append(errs, fmt.Errorf("hold %s: %w", name, err))
		}
		if p.conn == nil {
			return fmt.Errorf("the holder process has ended: %w", errors.Join(errs...))
		}
	}
	return errors.Join(errs...)
}

// reach connects to a process that runs.
func (p *process) reach() error {
	if err := p.connect(false); p.conn == nil {
		return err
	}
	return nil
}

func (p *process) dial() error {
	c, err := dialTrusted(p.dir)
	if err != nil {
		return err
	}
	p.conn = c
	pid := int(peerOf(c).Pid)
	p.state.Lock()
	defer p.state.Unlock()
	if p.pid = pid; pid == 0 || pid != p.child {
		p.other = time.Now()
	}
	return nil
}

func (p *process) disconnect() {
	if p.conn == nil {
		return
	}
	p.conn.Close()
	p.conn = nil
	p.state.Lock()
	defer p.state.Unlock()
	if p.pid == 0 || p.pid != p.child {
		p.other = time.Now()
	}
	p.pid = 0
	clear(p.held)
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
	p.state.Lock()
	p.child = cmd.Process.Pid
	p.state.Unlock()
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends after this process, or crashes
	return ended, nil
}

// call sends a request and reads the response. It closes the connection after an error.
func (p *process) call(op byte, name string, f *os.File) (text string, got *os.File, err error) {
	text, got, err = exchange(p.conn, op, name, f)
	var refused errRefused
	if err != nil && !errors.As(err, &refused) {
		p.disconnect()
	}
	return text, got, err
}
