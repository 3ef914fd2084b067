package intercept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/dns/forward"
)

// Resolver serves the sockets that a [Renewer] opens. dns.Server implements it.
type Resolver interface {
	// ServeUDPFrom and ServeTCPFrom serve a socket until the context ends. Names that the resolver
	// does not have are looked up at the server that the client queried.
	ServeUDPFrom(context.Context, *net.UDPConn, *forward.Origins) error
	ServeTCPFrom(context.Context, net.Listener, *forward.Origins) error
	// Origins registers a network namespace, and SetOrigins the one of the resolver's own sockets.
	Origins(forward.Network) *forward.Origins
	SetOrigins(*forward.Origins)
}

// RenewerOptions configures a Renewer.
type RenewerOptions struct {
	// Dir is the directory of records: [DirName] below paths.run.
	Dir string
	// Resolver serves the namespaces of pods, and loopback addresses that the agent does not
	// already serve. Its table must have the [CanaryHost]. If it is nil, DNS is not redirected.
	Resolver Resolver
	// Sockets opens the resolver's sockets. If it is nil, they are not held during restarts.
	Sockets *sockets.Book
	// Held reports whether the resolver's own sockets stay open until the next agent starts. It
	// is called when Run ends. If all sockets stay open, DNS stays redirected. nil means that
	// they are closed.
	Held func() bool
	Log  *slog.Logger // nil discards
}

// States of an installation, as seen by the agent.
const (
	StateActive  = "active"   // DNS is redirected
	StatePartly  = "partly"   // one family is redirected
	StateWaiting = "waiting"  // DNS goes to the real servers; Reason says why
	StateTCPOnly = "tcp-only" // only TCP is redirected, which needs no renewal
	StateBroken  = "broken"   // the rules are loaded, but some queries do not reach the agent
)

// Status is the state of one installation.
type Status struct {
	Netns    string   `json:"netns,omitempty"`
	Inode    uint64   `json:"inode"`
	Rule     string   `json:"rule,omitempty"` // of intercept.watch; "" if a command installed it
	State    string   `json:"state"`
	Families []string `json:"families,omitempty"` // redirected address families
	Reason   string   `json:"reason,omitempty"`
}

// Renewer renews redirections of DNS while the agent's resolver responds, updates cgroups, and
// reloads tables that other programs delete. It is safe for concurrent use.
type Renewer struct {
	o   RenewerOptions
	log *slog.Logger

	mu     sync.Mutex
	states map[uint64]Status // by inode of the namespace
	faults []error           // errors of records
	news   chan struct{}     // closed at the next change of states
}

// NewRenewer returns a renewer. It does nothing before Run.
func NewRenewer(o RenewerOptions) *Renewer {
	k := &Renewer{o: o, log: o.Log, states: map[uint64]Status{}, news: make(chan struct{})}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.o.Sockets == nil {
		k.o.Sockets = sockets.New(sockets.Options{Log: o.Log})
	}
	return k
}

// Status returns the sorted states of the installations, and the errors of records.
func (k *Renewer) Status() ([]Status, []error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Status
	for _, s := range k.states {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Status) int { return int(a.Inode) - int(b.Inode) })
	return out, slices.Clone(k.faults)
}

// Await waits until the redirection of a namespace works for at least one address family, or until
// ctx ends. It reports whether it works.
func (k *Renewer) Await(ctx context.Context, inode uint64) bool {
	for {
		k.mu.Lock()
		state, news := k.states[inode].State, k.news
		k.mu.Unlock()
		switch state {
		case StateActive, StatePartly, StateTCPOnly:
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-news:
		}
	}
}

// Run renews the redirections of all records until ctx ends. It then ends them while the resolver
// still responds, so that queries go to the real servers, and returns. If the sockets are held,
// the redirections stay for up to [LiveTime], and the next agent answers the queries in between.
func (k *Renewer) Run(ctx context.Context) error {
	if err := makeRecordDir(k.o.Dir); err != nil {
		return fmt.Errorf("interception of DNS: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.o.Dir, err)
	}
	defer w.Close()
	if err := w.Add(k.o.Dir); err != nil {
		return fmt.Errorf("watch %s: %w", k.o.Dir, err)
	}
	k.releaseUninstalled()
	running := map[uint64]*running{}
	defer func() {
		for _, r := range running {
			<-r.done // their context is derived from ctx
		}
	}()
	for {
		k.follow(ctx, running)
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return nil
			}
		case err := <-w.Errors:
			k.log.Warn("watching interception records failed; all records are read again", "dir", k.o.Dir, "error", err)
		}
	}
}

// namespaceKey returns the name of a namespace for held sockets.
func namespaceKey(inode uint64) string { return strconv.FormatUint(inode, 10) }

// releaseUninstalled releases the sockets of namespaces without an installation.
func (k *Renewer) releaseUninstalled() {
	records, faults := readRecords(k.o.Dir)
	if len(faults) > 0 {
		return // the sockets may belong to an unreadable record
	}
	var keys []string
	for i := range records {
		if k.o.Resolver != nil && records[i].Spec.DNSPort != 0 {
			keys = append(keys, namespaceKey(records[i].Inode))
		}
	}
	if err := k.o.Sockets.ReleaseNamespaces(keys); err != nil {
		k.log.Warn("sockets of uninstalled namespaces are still held", "error", err)
	}
}

// running is the goroutine of one installation.
type running struct {
	record Record
	stop   context.CancelCauseFunc
	done   chan struct{}
}

// Causes that stop a single installation.
var (
	errRemoved  = errors.New("uninstalled")
	errReplaced = errors.New("reinstalled") // with the same port
)

// follow starts and stops goroutines, so that each record has one.
func (k *Renewer) follow(ctx context.Context, now map[uint64]*running) {
	records, faults := readRecords(k.o.Dir)
	for _, err := range faults {
		k.log.Warn("an interception record is ignored", "error", err)
	}
	k.mu.Lock()
	k.faults = faults
	k.mu.Unlock()
	for inode, r := range now {
		i := slices.IndexFunc(records, func(x Record) bool { return x.Inode == inode })
		ended := false
		select {
		case <-r.done: // the namespace no longer exists
			ended = true
		default:
		}
		if !ended && i >= 0 && records[i].same(&r.record) {
			continue // its own goroutine follows the path of the namespace
		}
		if i < 0 || records[i].Spec.DNSPort != r.record.Spec.DNSPort {
			r.stop(errRemoved)
		} else {
			r.stop(errReplaced)
		}
		<-r.done
		delete(now, inode)
		if i < 0 {
			k.log.Info("interception was uninstalled", "netns", r.record.Netns)
		}
	}
	for _, rec := range records {
		if now[rec.Inode] != nil || ctx.Err() != nil {
			continue
		}
		own, stop := context.WithCancelCause(ctx)
		r := &running{record: rec, stop: stop, done: make(chan struct{})}
		now[rec.Inode] = r
		go func() {
			defer close(r.done)
			defer stop(nil)
			k.maintain(own, &r.record)
		}()
	}
}

// set records the state of an installation, and logs changes.
func (k *Renewer) set(r *Record, state string, families []string, reason string) {
	s := Status{Netns: r.Netns, Inode: r.Inode, Rule: r.Rule, State: state, Families: families, Reason: reason}
	k.mu.Lock()
	was, known := k.states[r.Inode]
	k.states[r.Inode] = s
	close(k.news)
	k.news = make(chan struct{})
	k.mu.Unlock()
	if known && was.State == state && was.Reason == reason && slices.Equal(was.Families, families) {
		return
	}
	level := slog.LevelInfo
	if state == StateWaiting || state == StateBroken {
		level = slog.LevelWarn
	}
	k.log.Log(context.Background(), level, "interception of DNS", "netns", r.Netns, "state", state, "families", families,
		"reason", reason)
}

func (k *Renewer) unset(r *Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.states, r.Inode)
}

// maintain runs one installation until ctx ends or its namespace no longer exists. After an error
// it tries again.
func (k *Renewer) maintain(ctx context.Context, r *Record) {
	defer k.unset(r)
	t := time.NewTicker(RefreshTime)
	defer t.Stop()
	for {
		at := *r
		if now, err := readRecord(recordPath(k.o.Dir, r.Inode)); err == nil && now.same(r) {
			at = *now // with the current path
		}
		err := k.run(ctx, &at, t.C)
		if errors.Is(err, errGone) || errors.Is(context.Cause(ctx), errRemoved) {
			if err := k.o.Sockets.ReleaseNamespace(namespaceKey(r.Inode)); err != nil {
				k.log.Warn("sockets of a network namespace are still held", "netns", r.Netns, "error", err)
			}
		}
		if errors.Is(err, errGone) {
			if err := os.Remove(recordPath(k.o.Dir, r.Inode)); err != nil {
				k.log.Warn("cannot remove the record of a network namespace that no longer exists", "netns", r.Netns, "error", err)
			}
			k.log.Info("interception ended: the network namespace no longer exists", "netns", r.Netns)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.set(r, StateWaiting, nil, err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
