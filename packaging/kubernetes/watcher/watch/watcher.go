package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/cluster"
)

// Options configures [Run].
type Options struct {
	Kubernetes *rest.Config
	Node       string   // name of the node; "": the pods of all nodes
	Self       string   // NAMESPACE/NAME of the watcher's pod; "": unknown
	Config     string   // NAMESPACE/NAME of the ConfigMap of resources; "": none
	System     []string // namespaces whose custom resources apply to the mesh; none: no custom resources are read
	Dir        string   // parent of the directories of files
	Socket     string   // Unix socket of the health check; "": none
	Log        *slog.Logger
}

// Times of the loop.
const (
	lockInterval   = 20 * time.Millisecond
	beatInterval   = 5 * time.Second
	verifyInterval = 10 * time.Minute
	retryInterval  = time.Second
	hungAfter      = 30 * time.Second
	touchInterval  = 15 * time.Second // at most between two changes of the time of status.json
)

// statusFile is the name of the file with the [Status]. Its time shows that the watcher runs.
const statusFile = "status.json"

// Status is the content of the file status.json and the answer of the health check.
type Status struct {
	Node      string    `json:"node,omitempty"` // empty: all nodes
	Ready     bool      `json:"ready"`          // the files match a complete list of pods and Services
	API       APIStatus `json:"api"`
	Pods      int       `json:"pods"`
	Services  int       `json:"services"`
	WaitingOn []string  `json:"waitingOn,omitempty"`  // kinds without a complete list
	Fault     string    `json:"writeError,omitempty"` // why files cannot be written
	Notes     []string  `json:"notes,omitempty"`      // what users should know about objects
}

// APIStatus tells whether the Kubernetes API answers. While it does not, all files stay.
type APIStatus struct {
	Reachable bool              `json:"reachable"`
	AwaySince *time.Time        `json:"awaySince,omitempty"` // also over restarts of the watcher
	Errors    map[string]string `json:"errors,omitempty"`    // by kind of object
}

// Run keeps the files up to date until ctx ends. While another watcher writes them, it reads the
// cluster, but does not write.
func Run(ctx context.Context, o Options) error {
	client, err := cluster.NewClient(o.Kubernetes)
	if err != nil {
		return err
	}
	defer client.Close()
	world := cluster.New(cluster.Options{Node: o.Node, Self: o.Self, Config: o.Config, System: o.System})
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { world.Follow(ctx, client, o.Log) })
	lock, err := acquire(ctx, o.Dir, o.Log)
	if lock == nil {
		return err
	}
	defer lock.Close()
	w, err := newWriter(o.Dir, world, o.Log)
	if err != nil {
		return err
	}
	defer func() {
		if err := w.close(); err != nil {
			o.Log.Warn("cannot close the directories", "error", err)
		}
	}()
	h := &health{now: time.Now}
	h.beat()
	stop, err := h.serve(o.Socket)
	if err != nil {
		return err
	}
	defer stop()
	l := &loop{o: o, w: w, h: h, away: awayBefore(filepath.Join(o.Dir, statusFile), time.Now())}
	l.run(ctx)
	return nil
}

// acquire locks a directory. While another watcher has the lock, such as that of the pod that this
// one replaces, it waits. It returns nil if ctx ends first. The kernel releases the lock of a killed
// watcher.
func acquire(ctx context.Context, dir string, log *slog.Logger) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("%w; make the directory accessible for the watcher's user", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "watch.lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w; remove it if it is not a file of the watcher's user", err)
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if !waiting {
			log.Info("waiting until the watcher that writes this directory has ended", "dir", dir)
		}
		select {
		case <-ctx.Done():
			return nil, f.Close()
		case <-tick.C:
		}
	}
}

// loop is the only user of the writer.
type loop struct {
	o       Options
	w       *writer
	h       *health
	written []byte    // status.json
	touched time.Time // when status.json was last known to be new
	away    time.Time // since when the API did not answer an earlier watcher; zero after all lists
}

func (l *loop) run(ctx context.Context) {
	beat, verify := time.NewTicker(beatInterval), time.NewTicker(verifyInterval)
	defer beat.Stop()
	defer verify.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.w.world.Changed():
		case <-beat.C:
		case <-verify.C:
			l.w.verify()
		case <-retry.C:
		}
		if !l.w.apply() {
			retry.Reset(retryInterval)
		}
		l.report()
		l.h.beat()
	}
}

// report updates the status and its file.
func (l *loop) report() {
	s := l.w.world.Status()
	out := Status{Node: l.o.Node, Ready: l.w.world.Ready() && l.w.fault == "", Pods: s.Pods, Services: s.Services,
		WaitingOn: s.Waiting, Fault: l.w.fault, Notes: l.w.allNotes(),
		API: APIStatus{Reachable: s.Reachable, Errors: s.Errors}}
	if s.Reachable && len(s.Waiting) == 0 {
		l.away = time.Time{}
	}
	if since := s.Since.UTC().Truncate(time.Second); !l.away.IsZero() {
		out.API.Reachable, out.API.AwaySince = false, &l.away
	} else if !s.Reachable {
		out.API.AwaySince = &since
	}
	text, err := json.MarshalIndent(out, "", "  ")
	text = append(text, '\n')
	path, now := filepath.Join(l.o.Dir, statusFile), time.Now()
	if err != nil || bytes.Equal(text, l.written) && now.Sub(l.touched) < touchInterval {
		return
	}
	if bytes.Equal(text, l.written) && os.Chtimes(path, now, now) == nil {
		l.touched = now
		return
	}
	l.h.status.Store(&text)
	if err := replaceFile(path, text); err != nil {
		l.o.Log.Warn("cannot write the status", "file", path, "error", err)
		return
	}
	l.written, l.touched = text, now
	l.o.Log.Debug("wrote the status", "reachable", out.API.Reachable)
}

// maxStatus limits the size of a status file that is read.
const maxStatus = 1 << 20

// awayBefore returns since when the API has not answered, according to the status of an earlier
// watcher, or zero.
func awayBefore(path string, now time.Time) time.Time {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	var s Status
	if json.NewDecoder(io.LimitReader(f, maxStatus)).Decode(&s) != nil || s.API.Reachable || s.API.AwaySince == nil ||
		s.API.AwaySince.After(now) {
		return time.Time{}
	}
	return s.API.AwaySince.UTC()
}

func replaceFile(path string, text []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, text, 0o640); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// health answers whether the loop runs. An API server that does not answer is no reason to restart
// the watcher.
type health struct {
	now    func() time.Time
	last   atomic.Int64
	status atomic.Pointer[[]byte]
}

func (h *health) beat() { h.last.Store(h.now().UnixNano()) }

func (h *health) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	text := []byte("{}\n")
	if p := h.status.Load(); p != nil {
		text = *p
	}
	var s Status
	code := http.StatusOK
	switch err := json.Unmarshal(text, &s); {
	case h.now().Sub(time.Unix(0, h.last.Load())) > hungAfter || err != nil:
		code = http.StatusInternalServerError
	case r.URL.Path == "/readyz" && !s.Ready:
		code = http.StatusServiceUnavailable
	case r.URL.Path != "/healthz" && r.URL.Path != "/readyz":
		code = http.StatusNotFound
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_, _ = rw.Write(text)
}

// serve answers on a Unix socket until stop is called.
func (h *health) serve(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another path with --health-socket", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	return func() {
		_ = server.Close()
		wg.Wait()
	}, nil
}
