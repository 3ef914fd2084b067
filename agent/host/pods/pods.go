package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// Bounds of the directory of all pods.
const (
	maxPods    = 1024  // served pods
	maxEntries = 16384 // names that are read
	maxShown   = 64    // refused registrations in the state
)

// Options configures [New]. Dir and Sockets are required.
type Options struct {
	Dir     string   // directory of all pods
	Sockets []string // names of the sockets in the directory of each pod
	Owner   int      // user of the agent
	// Conns is the maximum number of connections of one pod to each socket, by default 32.
	Conns  int
	Holder Holder       // nil: none
	Log    *slog.Logger // nil: no logs
	// Poll is the time between scans of the directory, besides those for its events. The default is
	// 10 s.
	Poll time.Duration
	// Changed is called after a scan has found other pods. It must not block. Nil: not called.
	Changed func()
	// Registry receives the metrics. Nil: none.
	Registry prometheus.Registerer
}

// Holder keeps listening sockets open while the agent is down. It identifies them by the paths of
// their files.
type Holder interface {
	// Take returns the socket that an earlier agent has left, or nil.
	Take(path string) net.Listener
	// Add passes a new socket to the holder.
	Add(path string, l *net.UnixListener)
	// Drop releases a socket whose file is about to be removed.
	Drop(path string)
}

// Pods serves the sockets of pods. Create it with [New], then call [Pods.Scan] once, then
// [Pods.Run]. Its methods are safe for concurrent use.
type Pods struct {
	o         Options
	listeners []*listener // one for each of Options.Sockets

	scanning sync.Mutex // held during a scan
	stopped  bool       // guarded by scanning
	accepts  sync.WaitGroup

	mu      sync.Mutex
	pods    map[string]*pod  // by uid
	refused map[string]error // reasons by name of the file
	broken  error            // why the directory cannot be read
}

// pod is a registered pod. sockets is guarded by Pods.mu, and the other fields belong to the scan.
type pod struct {
	who     *access.Pod
	file    stamp
	dir     *os.File
	id      [2]uint64 // device and inode of dir
	sockets []*socket // one for each of Options.Sockets; nil: not open
}

// New returns a server for pods, which has read nothing yet.
func New(o Options) *Pods {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Conns = cmp.Or(o.Conns, 32)
	o.Poll = cmp.Or(o.Poll, 10*time.Second)
	p := &Pods{o: o, pods: map[string]*pod{}, refused: map[string]error{}}
	for range o.Sockets {
		p.listeners = append(p.listeners, newListener(o.Dir, p.stop))
	}
	if o.Registry != nil {
		if err := o.Registry.Register(p); err != nil {
			o.Log.Warn("there are no metrics of pods", "error", err)
		}
	}
	return p
}

// Listener returns the listener whose connections are those to one of Options.Sockets in all pods.
// They are [access.PodConn]. After one of the listeners is closed, connections wait in the sockets.
func (p *Pods) Listener(i int) net.Listener { return p.listeners[i] }

// Open serves the registered pods, and returns the listener of one of Options.Sockets. A nil Pods
// has none.
func (p *Pods) Open(i int) []net.Listener {
	if p == nil {
		return nil
	}
	p.Scan()
	return []net.Listener{p.Listener(i)}
}

// Run serves the pods of the directory until ctx ends. A nil Pods returns at once.
func (p *Pods) Run(ctx context.Context) error {
	if p == nil {
		return nil
	}
	defer p.stop()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		p.o.Log.Warn("cannot watch the directory of pods; polling it", "dir", p.o.Dir, "error", err)
		w = &fsnotify.Watcher{}
	} else {
		defer w.Close()
	}
	for {
		watched := err == nil && watch(w, p.o.Dir)
		p.Scan()
		wait := p.o.Poll
		if !watched {
			wait /= 10
		}
		poll := time.NewTimer(wait)
		if !p.await(ctx, w, poll.C) {
			poll.Stop()
			return nil
		}
		poll.Stop()
	}
}

// await waits for the next scan. It returns false after ctx has ended.
func (p *Pods) await(ctx context.Context, w *fsnotify.Watcher, poll <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-poll:
			return true
		case <-w.Errors: // of lost events, for example
			return true
		case e := <-w.Events:
			if e.Name == p.o.Dir || filepath.Dir(e.Name) == p.o.Dir && strings.HasSuffix(e.Name, suffix) {
				return true
			}
		}
	}
}

// watch watches the directory and its parent, in which it may be made again. It returns false if
// the directory is not watched.
func watch(w *fsnotify.Watcher, dir string) bool {
	return w.Add(filepath.Dir(dir)) == nil && w.Add(dir) == nil
}

// Scan compares the served pods with the directory once.
func (p *Pods) Scan() {
	p.scanning.Lock()
	defer p.scanning.Unlock()
	if p.stopped {
		return
	}
	changed, err := p.scan()
	p.mu.Lock()
	news := err != nil && (p.broken == nil || p.broken.Error() != err.Error())
	p.broken = err
	p.mu.Unlock()
	if news {
		p.o.Log.Warn("cannot read the directory of pods; the pods that are served stay served", "error", err)
	}
	if changed && p.o.Changed != nil {
		p.o.Changed()
	}
}

func (p *Pods) scan() (changed bool, err error) {
	root, err := p.openRoot()
	if err != nil {
		return false, err
	}
	defer root.Close()
	names, err := root.Readdirnames(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("xds.pods: list %s: %w", p.o.Dir, err)
	case len(names) > maxEntries:
		return false, fmt.Errorf("xds.pods: %s has more than %d entries; remove those of pods that do not exist", p.o.Dir,
			maxEntries)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasSuffix(n, suffix) || strings.HasPrefix(n, ".") || n == suffix
	})
	refused := map[string]error{}
	for uid := range maps.Clone(p.pods) {
		if _, ok := slices.BinarySearch(names, uid+suffix); !ok {
			p.remove(uid)
			changed = true
		}
	}
	for _, name := range names {
		news, err := p.update(root, name)
		changed = changed || news
		if err != nil {
			refused[name] = err
		}
	}
	p.mu.Lock()
	before := p.refused
	p.refused = refused
	p.mu.Unlock()
	logged := 0
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		why := refused[name].Error()
		if was := before[name]; (was == nil || was.Error() != why) && logged < maxShown {
			logged++
			p.o.Log.Warn("the registration of a pod is refused", "file", filepath.Join(p.o.Dir, name), "reason", why)
		}
	}
	return changed, nil
}

// update serves a registered pod. A pod that is served stays served if the new content of its file
// is refused.
func (p *Pods) update(root *os.File, file string) (changed bool, err error) {
	uid := strings.TrimSuffix(file, suffix)
	have := p.pods[uid]
	var at stamp
	if have != nil {
		at = have.file
	}
	who, at, err := p.register(int(root.Fd()), file, at)
	if err != nil {
		return false, refuse(reasonRegistration, err)
	}
	if have == nil && len(p.pods) >= maxPods {
		return false, refuse(reasonLimit,
			fmt.Errorf("%d pods are served, which is the maximum; run fewer pods on this node", maxPods))
	}
	dir, err := p.openPod(int(root.Fd()), uid)
	if err != nil {
		return false, refuse(reasonDirectory, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		dir.Close()
		return false, refuse(reasonDirectory, err)
	}
	id := [2]uint64{uint64(st.Dev), st.Ino}
	if have != nil && have.id == id && (who == nil || *who == *have.who) {
		dir.Close()
		have.file = at
		return false, refuse(reasonSocket, p.open(have))
	}
	if have != nil {
		if who == nil {
			who = have.who
		}
		p.remove(uid)
	}
	next := &pod{who: who, file: at, dir: dir, id: id, sockets: make([]*socket, len(p.o.Sockets))}
	p.mu.Lock()
	p.pods[uid] = next
	p.mu.Unlock()
	p.o.Log.Info("serving a pod", "pod", who.String(), "uid", who.UID)
	return true, refuse(reasonSocket, p.open(next))
}

// remove ends the sockets and connections of a pod.
func (p *Pods) remove(uid string) {
	x := p.pods[uid]
	p.mu.Lock()
	delete(p.pods, uid)
	sockets := slices.Clone(x.sockets)
	p.mu.Unlock()
	for i, s := range sockets {
		if s == nil {
			continue
		}
		if p.o.Holder != nil {
			p.o.Holder.Drop(p.path(x, i))
		}
		s.close()
	}
	x.dir.Close()
	p.o.Log.Info("a pod is gone", "pod", x.who.String(), "uid", uid)
}

// stop stops accepting connections. The files of the sockets stay, so that Envoys find those that a
// holder has.
func (p *Pods) stop() {
	p.scanning.Lock()
	defer p.scanning.Unlock()
	p.stopped = true
	for _, l := range p.listeners {
		l.end()
	}
	for _, x := range p.pods {
		for _, s := range x.sockets {
			if s != nil {
				s.stopAccepting()
			}
		}
	}
	p.accepts.Wait()
}

// State is what a [Pods] serves.
type State struct {
	Served  int      // pods
	Refused []string // files of pods that are refused, with the reason, at most 64
	More    int      // refused files that are not in Refused
	Broken  error    // why the directory cannot be read; nil: it can
}

// State returns what is served now.
func (p *Pods) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Served: len(p.pods), Broken: p.broken}
	for _, name := range slices.Sorted(maps.Keys(p.refused)) {
		if len(s.Refused) == maxShown {
			s.More = len(p.refused) - maxShown
			break
		}
		s.Refused = append(s.Refused, name+": "+p.refused[name].Error())
	}
	return s
}
