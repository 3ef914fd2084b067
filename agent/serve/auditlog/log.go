package auditlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/rotation"
)

// Options configures a [Log]. Path is required.
type Options struct {
	Path    string // of the active file; see [rotation.Options]
	State   string // file for the record of the last event; "": none
	Limits  rotation.Limits
	Roots   []string      // see [rotation.Options]
	Group   string        // name or number of the file group; "" is that of the process
	Profile audit.Profile // "" is None
	// Patience bounds the wait of a request that has changed something; 2 s.
	Patience time.Duration
	// Memory bounds the pending events in bytes; 4 MiB.
	Memory   int
	Log      *slog.Logger          // nil: discard
	Now      func() time.Time      // nil: time.Now
	Registry prometheus.Registerer // nil: no metrics
}

const (
	// reserve is how far the events of changes may exceed Memory, in bytes.
	reserve = 1 << 20
	// openEvery is the retry interval for a file that cannot be opened.
	openEvery = 5 * time.Second
	// stopTime bounds the final write at shutdown.
	stopTime = 2 * time.Second
	// stalledAfter is the duration of one write after which the file counts as stalled; failedAfter
	// applies if a write has failed. A writer retries several times within failedAfter.
	stalledAfter = time.Second
	failedAfter  = 100 * time.Millisecond
	// leastSpace is the minimum free space on the file system, in bytes. Below it, the API refuses
	// writes.
	leastSpace = 1 << 20
	// alarmTime is how long dropped events raise an alarm.
	alarmTime = time.Hour
)

// Values of the label reason.
const (
	droppedFull    = "full"    // the file accepts no events, and memory is full
	droppedStopped = "stopped" // the agent stopped before they were written, or they came later
	droppedFlood   = "flood"   // too many refused requests of one user or address
)

// ErrNotWritten is the error of [Log.Store] for an event that is not in the file yet. It will be
// written unless the process ends first.
var ErrNotWritten = errors.New("the audit log has not stored the event yet")

// Log is the audit log. It is safe for concurrent use.
type Log struct {
	opts    Options
	profile atomic.Value // audit.Profile
	limits  atomic.Pointer[rotation.Limits]
	relimit atomic.Bool // limits differ from those of the file
	file    atomic.Pointer[rotation.File]
	failed  atomic.Pointer[error] // why there is no file
	opened  chan struct{}         // closed when the file is open
	wake    chan struct{}         // one slot: there is something to write or to open
	chain   chain
	unsaved bool                         // the last write of the record failed
	record  atomic.Pointer[audit.Record] // of the last written event
	linking atomic.Uint64                // number of the last event that is or was being written
	broken  atomic.Pointer[string]       // how the log differed from the record at the start
	breaks  prometheus.Gauge

	written, refused prometheus.Counter
	dropped          *prometheus.CounterVec

	mu      sync.Mutex
	lines   []byte // pending lines
	linked  int    // bytes of lines that have their place in the chain
	events  int    // events in lines
	waiters []chan struct{}
	flying  int       // bytes being written
	since   time.Time // start of the write in progress (monotonic); zero: none
	missing int       // events dropped since the last event that reported it
	first   time.Time // time of the first one
	total   uint64    // dropped since the start
	last    time.Time // time of the last dropped event
	lastAt  time.Time // the same, independent of the clock
	over    bool      // Run has returned
}

// New validates the options and opens the file, unless the profile is None. It does not fail if the
// file cannot be opened; [Log.Ready] and [Log.Alarm] report it.
func New(o Options) (*Log, error) {
	if o.Profile == "" {
		o.Profile = audit.ProfileNone
	}
	if _, err := audit.ParseProfile(string(o.Profile)); err != nil {
		return nil, fmt.Errorf("auditLog.profile: %w", err)
	}
	if err := o.Limits.Validate("auditLog."); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience == 0 {
		o.Patience = 2 * time.Second
	}
	if o.Memory == 0 {
		o.Memory = 4 << 20
	}
	l := &Log{opts: o, opened: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.profile.Store(o.Profile)
	l.limits.Store(&o.Limits)
	if err := l.measure(o.Registry); err != nil {
		return nil, fmt.Errorf("register the metrics of the audit log: %w", err)
	}
	if o.Profile == audit.ProfileNone {
		o.Log.Warn("the audit log is off: requests to the API leave no trace; set auditLog.profile to Default")
		if s, err := readState(o.State); err != nil || s.Path != o.Path || s.Profile == audit.ProfileNone {
			return l, nil
		} // the switch to None is the last event
	}
	l.open()
	return l, nil
}

func (l *Log) measure(reg prometheus.Registerer) error {
	l.written = prometheus.NewCounter(prometheus.CounterOpts{Name: "nearside_audit_events_total",
		Help: "Events written to the audit log."})
	l.breaks = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nearside_audit_chain_broken",
		Help: "1 if the end of the audit log differed from the agent's record of it when the agent opened it, else 0."})
	l.refused = prometheus.NewCounter(prometheus.CounterOpts{Name: "nearside_audit_writes_refused_total",
		Help: "API writes refused because the audit log could not store their events."})
	l.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nearside_audit_events_dropped_total",
		Help: "Events missing in the audit log, by reason."}, []string{"reason"})
	for _, r := range [...]string{droppedFull, droppedStopped, droppedFlood} {
		l.dropped.WithLabelValues(r)
	}
	if reg == nil {
		return nil
	}
	outside := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "nearside_audit_file_changes_total",
		Help: "Times that others have renamed, removed, truncated or written to the active file of the audit log."},
		func() float64 {
			if f := l.file.Load(); f != nil {
				return float64(f.Stats().Outside)
			}
			return 0
		})
	for _, c := range []prometheus.Collector{l.written, l.refused, l.dropped, l.breaks, outside} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// open opens the file if it is not open. Only New and Run call it.
func (l *Log) open() {
	if l.file.Load() != nil {
		return
	}
	f, err := rotation.Open(rotation.Options{Path: l.opts.Path, Limits: *l.limits.Load(), Group: l.opts.Group,
		Roots: l.opts.Roots, Now: l.opts.Now})
	if err != nil {
		if was := l.failed.Swap(&err); was == nil || (*was).Error() != err.Error() {
			l.opts.Log.Error("the audit log cannot be opened; writes over the API are refused until it can",
				"file", l.opts.Path, "error", err)
		}
		return
	}
	if l.failed.Swap(nil) != nil {
		l.opts.Log.Info("the audit log is open", "file", l.opts.Path)
	}
	l.file.Store(f)
	l.resume()
	close(l.opened)
}

// Profile returns the profile in force.
func (l *Log) Profile() audit.Profile { return l.profile.Load().(audit.Profile) }

// SetProfile changes the profile for later requests, and records the change as an event.
func (l *Log) SetProfile(p audit.Profile) {
	was := l.Profile()
	l.profile.Store(p)
	if was != p {
		l.switched(was, p)
	}
	if p == audit.ProfileNone {
		l.opts.Log.Warn("the audit log is off: requests to the API leave no trace; set auditLog.profile to Default")
	}
	l.signal()
}

// SetLimits changes the limits of the file before the next write. Invalid limits change nothing.
func (l *Log) SetLimits(limits rotation.Limits) error {
	if err := limits.Validate("auditLog."); err != nil {
		return err
	}
	l.limits.Store(&limits)
	l.relimit.Store(true)
	l.signal()
	return nil
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Record queues an event. It never blocks.
func (l *Log) Record(e *audit.Event) { l.add(e, nil) }

// Store queues the event of a change, and returns once it is in the file. If that takes too long,
// it returns an error wrapping [ErrNotWritten]; the event is still written later.
func (l *Log) Store(e *audit.Event) error {
	done := make(chan struct{})
	if !l.add(e, done) {
		return fmt.Errorf("%w: the queue is full", ErrNotWritten)
	}
	late := time.NewTimer(l.opts.Patience)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
	}
	if err := l.stuck(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return ErrNotWritten
}

// add queues an event. done, if not nil, is closed once the event is in the file.
func (l *Log) add(e *audit.Event, done chan struct{}) bool {
	line := e.Append(make([]byte, 0, 1<<10))
	most := l.opts.Memory
	if done != nil {
		most += reserve
	}
	l.mu.Lock()
	switch {
	case l.over:
		l.drop(1, droppedStopped)
	case len(l.lines)+l.flying+len(line) > most:
		l.drop(1, droppedFull)
	default:
		l.lines = append(l.lines, line...)
		l.events++
		if done != nil {
			l.waiters = append(l.waiters, done)
		}
		l.mu.Unlock()
		l.signal()
		return true
	}
	l.mu.Unlock()
	return false
}

// drop counts lost events. l.mu is held.
func (l *Log) drop(n int, reason string) {
	now := l.opts.Now()
	if l.missing == 0 {
		l.first = now
	}
	l.missing += n
	l.total += uint64(n) // #nosec G115 -- a count
	l.last, l.lastAt = now, time.Now()
	l.dropped.WithLabelValues(reason).Add(float64(n))
}

// Suppressed counts a refused request without an event, because there were too many. The next event
// reports it.
func (l *Log) Suppressed() { l.dropped.WithLabelValues(droppedFlood).Inc() }

// switched records a change of the profile.
func (l *Log) switched(was, now audit.Profile) {
	at := l.opts.Now()
	e := &audit.Event{Level: audit.LevelMetadata, ID: newID(), Stage: audit.StageResponseComplete,
		Verb: audit.VerbUpdate, User: audit.User{Username: audit.UserAgent}, Received: at, At: at}
	e.Annotate(audit.AnnotationConfig, fmt.Sprintf("auditLog.profile: %s, before %s", now, was))
	l.Record(e)
}

// take returns the pending lines, followed by a report of missing events. The first linked bytes of
// them have their place in the chain.
func (l *Log) take() (lines []byte, linked, events int, waiters []chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing > 0 {
		l.lines = audit.Dropped(l.missing, l.first, l.last, newID()).Append(l.lines)
		l.events++
		l.missing = 0
	}
	lines, linked, events, waiters = l.lines, l.linked, l.events, l.waiters
	l.lines, l.linked, l.events, l.waiters = nil, 0, 0, nil
	if l.flying = len(lines); len(lines) > 0 {
		l.since = time.Now()
	}
	return lines, linked, events, waiters
}

// landed records the end of a write.
func (l *Log) landed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying, l.since = 0, time.Time{}
}

// Path returns the path of the active file.
func (l *Log) Path() string { return l.opts.Path }

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return audit.ID(b)
}
