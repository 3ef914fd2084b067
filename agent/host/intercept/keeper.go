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
)

// Resolver serves the sockets that a [Keeper] opens, as dns.Server does.
type Resolver interface {
	ServeUDP(context.Context, *net.UDPConn) error
	ServeTCP(context.Context, net.Listener) error
}

// KeeperOptions are those of a Keeper.
type KeeperOptions struct {
	// Dir is the directory of records, [DirName] below paths.run.
	Dir string
	// Resolver answers in the namespaces of pods, and on the loopback addresses of the agent's own
	// that nobody else serves. Its table has to have the [CanaryHost]. Nil: there is none, and no DNS
	// is kept redirected.
	Resolver Resolver
	// Sockets opens those that the resolver is served at. Nil: one whose sockets nobody holds.
	Sockets *sockets.Book
	// Stay says whether somebody holds the resolver's own sockets until the next agent. It is asked
	// when Run ends: DNS stays redirected then where all sockets are held. Nil: nobody does.
	Stay func() bool
	Log  *slog.Logger // nil is silent
}

// States of an installation, as the agent has them.
const (
	StateActive  = "active"   // DNS is redirected
	StatePartly  = "partly"   // one family is
	StateWaiting = "waiting"  // DNS goes to the real servers, and Reason says why
	StateTCPOnly = "tcp-only" // only TCP is redirected, which the agent need not keep alive
)

// Status is the state of one installation.
type Status struct {
	Netns    string   `json:"netns,omitempty"`
	Inode    uint64   `json:"inode"`
	State    string   `json:"state"`
	Families []string `json:"families,omitempty"` // whose DNS is redirected
	Reason   string   `json:"reason,omitempty"`
}

// Keeper keeps the redirection of DNS alive while the agent's resolver answers, follows cgroups,
// and loads tables again that other programs delete. It is safe for concurrent use.
type Keeper struct {
	o   KeeperOptions
	log *slog.Logger

	mu     sync.Mutex
	states map[uint64]Status // by namespace
	faults []error           // of records
}

// NewKeeper makes a keeper. It does nothing before Run.
func NewKeeper(o KeeperOptions) *Keeper {
	k := &Keeper{o: o, log: o.Log, states: map[uint64]Status{}}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.o.Sockets == nil {
		k.o.Sockets = sockets.New(sockets.Options{Log: o.Log})
	}
	return k
}

// Status returns the state of each installation, sorted, and the faults of records.
func (k *Keeper) Status() ([]Status, []error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Status
	for _, s := range k.states {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Status) int { return int(a.Inode) - int(b.Inode) })
	return out, slices.Clone(k.faults)
}

// Run follows the records and keeps redirections alive until ctx ends. It then ends them, so that
// names are asked of the real servers while the resolver still answers, and returns when that is
// done. Where somebody holds the sockets they stay, for [LiveTime] at most: what is asked meanwhile
// is for the next agent.
func (k *Keeper) Run(ctx context.Context) error {
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
	k.releaseOthers()
	running := map[uint64]*running{}
	defer func() {
		for _, r := range running {
			<-r.done // they have the same context
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
			k.log.Warn("the watch of records of interception failed; all are read again", "dir", k.o.Dir, "error", err)
		}
	}
}

// place is the name of a namespace for sockets that are held.
func place(inode uint64) string { return strconv.FormatUint(inode, 10) }

// releaseOthers gives up the sockets of namespaces that are not intercepted any more.
func (k *Keeper) releaseOthers() {
	records, faults := readRecords(k.o.Dir)
	if len(faults) > 0 {
		return // they may be of these
	}
	var places []string
	for i := range records {
		if k.o.Resolver != nil && records[i].Spec.DNSPort != 0 {
			places = append(places, place(records[i].Inode))
		}
	}
	if err := k.o.Sockets.ReleasePlaces(places); err != nil {
		k.log.Warn("sockets of namespaces that were uninstalled are still held", "error", err)
	}
}

// running is a goroutine that takes care of one installation.
type running struct {
	record Record
	stop   context.CancelCauseFunc
	done   chan struct{}
}

// What ends the care of one installation alone.
var (
	errRemoved  = errors.New("uninstalled")
	errReplaced = errors.New("installed anew") // at the same port
)

// follow has a goroutine for each record.
func (k *Keeper) follow(ctx context.Context, now map[uint64]*running) {
	records, faults := readRecords(k.o.Dir)
	for _, err := range faults {
		k.log.Warn("a record of interception is left out", "error", err)
	}
	k.mu.Lock()
	k.faults = faults
	k.mu.Unlock()
	for inode, r := range now {
		i := slices.IndexFunc(records, func(x Record) bool { return x.Inode == inode })
		ended := false
		select {
		case <-r.done: // its namespace is gone
			ended = true
		default:
		}
		if !ended && i >= 0 && records[i].equal(&r.record) {
			continue
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
			k.keep(own, &r.record)
		}()
	}
}

// set notes the state of an installation, and logs what has changed.
func (k *Keeper) set(r *Record, state string, families []string, reason string) {
	s := Status{Netns: r.Netns, Inode: r.Inode, State: state, Families: families, Reason: reason}
	k.mu.Lock()
	was, known := k.states[r.Inode]
	k.states[r.Inode] = s
	k.mu.Unlock()
	if known && was.State == state && was.Reason == reason && slices.Equal(was.Families, families) {
		return
	}
	level := slog.LevelInfo
	if state == StateWaiting {
		level = slog.LevelWarn
	}
	k.log.Log(context.Background(), level, "interception of DNS", "netns", r.Netns, "state", state, "families", families,
		"reason", reason)
}

func (k *Keeper) unset(r *Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.states, r.Inode)
}

// keep takes care of one installation until ctx ends or its namespace is gone. What fails is tried
// again.
func (k *Keeper) keep(ctx context.Context, r *Record) {
	defer k.unset(r)
	t := time.NewTicker(RefreshTime)
	defer t.Stop()
	for {
		err := k.attend(ctx, r, t.C)
		if errors.Is(err, errGone) || errors.Is(context.Cause(ctx), errRemoved) {
			if err := k.o.Sockets.ReleasePlace(place(r.Inode)); err != nil {
				k.log.Warn("sockets of a network namespace are still held", "netns", r.Netns, "error", err)
			}
		}
		if errors.Is(err, errGone) {
			if err := os.Remove(recordPath(k.o.Dir, r.Inode)); err != nil {
				k.log.Warn("the record of a network namespace that is gone cannot be removed", "netns", r.Netns, "error", err)
			}
			k.log.Info("interception ends: the network namespace is gone", "netns", r.Netns)
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
