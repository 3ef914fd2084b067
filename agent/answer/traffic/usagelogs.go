package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// Indexes into operators.
const (
	atTime = iota
	atCluster
	atRawCluster
	atLocal
	atHost
	atRemote
	atAuthority
)

var operators = []string{
	atTime: "START_TIME", atCluster: "UPSTREAM_CLUSTER", atRawCluster: "UPSTREAM_CLUSTER_RAW",
	atLocal: "DOWNSTREAM_LOCAL_ADDRESS",
	atHost:  "UPSTREAM_HOST", atRemote: "UPSTREAM_REMOTE_ADDRESS", atAuthority: "REQ(:AUTHORITY)",
}

// Log is a file or FIFO that loggers of the proxy write to.
type Log struct {
	Path string // "" for loggers that write to no file
	// Reason says why its lines cannot be read; "" if they can.
	Reason string
	Hints  []string

	families []*family
}

// family is a set of loggers of one log whose formats differ only in literal words.
type family struct {
	*logline.Family
	listeners []*listener // by member of the formats
	out       bool        // outbound traffic
	names     bool        // its lines identify the destination
	full      map[*listener]bool
}

// Usage counts the lines of one proxy by service.
type Usage struct {
	Logs []*Log // of the config, sorted by path

	backends  *explain.Backends
	listeners []*listener
	lookup    lookup
	since     time.Time // older lines are not counted; zero: all are

	Lines    LineCounts
	hits     map[int]*Seen            // by index into backends.Items
	direct   map[netip.AddrPort]*Seen // instances dialed by their own address
	unknown  map[string]*Seen
	verdicts map[string]verdict
}

// NewUsage returns a counter for the proxy with this config, which sees the services in b. Lines
// older than since are not counted; the zero time counts all.
func NewUsage(config Config, b *explain.Backends, since time.Time) (*Usage, error) {
	list, err := parseListeners(config, b)
	if err != nil {
		return nil, err
	}
	u := &Usage{backends: b, listeners: list, since: since, lookup: newLookup(b), hits: map[int]*Seen{},
		direct: map[netip.AddrPort]*Seen{}, unknown: map[string]*Seen{}, verdicts: map[string]verdict{}}
	type entry struct {
		listener *listener
		logger   logline.Logger
	}
	byPath := map[string][]entry{}
	listeners := listenersOf(config)
	for _, x := range list {
		loggers, err := logline.Loggers(x.name, listeners[x.name])
		if err != nil {
			return nil, err
		}
		for _, l := range loggers {
			l.Format.Text = withoutPrefix(l.Path, l.Format.Text)
			switch {
			case x.direction == passthrough && isPassthrough(x.name):
				l.Format.Name = external
			case len(x.backends) > 0:
				l.Format.Name = b.Items[x.backends[0]].Name
			}
			byPath[l.Path] = append(byPath[l.Path], entry{x, l})
		}
	}
	for p, entries := range byPath {
		log := &Log{Path: p}
		u.Logs = append(u.Logs, log)
		if p == "" {
			log.Reason = "it does not write to a file"
			continue
		}
		for _, e := range entries {
			if op := e.logger.Format.Forgeable(); op != "" && log.Reason == "" {
				log.Reason = fmt.Sprintf("one of its text formats has %s, with which clients can forge lines; "+
					"use a JSON format, or remove the operator", op)
			}
		}
		if log.Reason != "" {
			continue
		}
		for _, out := range []bool{true, false} {
			var formats []logline.Format
			var of []entry
			for _, e := range entries {
				if out == (e.listener.direction != inbound) {
					formats, of = append(formats, e.logger.Format), append(of, e)
				}
			}
			families, faults := logline.Families(formats, operators...)
			for i, err := range faults {
				if err != nil {
					log.hint(fmt.Sprintf("%s: %v", of[i].listener.name, err))
				}
			}
			for _, f := range families {
				x := &family{Family: f, listeners: make([]*listener, len(formats)), out: out, full: map[*listener]bool{}}
				for _, i := range f.Members {
					x.listeners[i] = of[i].listener
					if !of[i].logger.Filtered && !of[i].logger.Listener {
						x.full[of[i].listener] = true
					}
				}
				x.tell(log)
				log.families = append(log.families, x)
			}
		}
		if !slices.ContainsFunc(log.families, func(f *family) bool { return f.out }) {
			log.Reason = "it contains no outbound traffic of the workload"
			if len(log.Hints) > 0 {
				log.Reason = strings.Join(log.Hints, "; ")
			}
		}
	}
	slices.SortFunc(u.Logs, func(a, b *Log) int { return strings.Compare(a.Path, b.Path) })
	return u, nil
}

// external is the service name that passthrough listeners log.
const external = "external"

func (l *Log) hint(text string) {
	if len(l.Hints) < maxHints && !slices.Contains(l.Hints, text) {
		l.Hints = append(l.Hints, text)
	}
}

// maxHints limits the hints about the formats of one log.
const maxHints = 8

// tell determines whether the lines of a family identify the destination, and adds a hint if they
// do not.
func (f *family) tell(log *Log) {
	if !f.out {
		return
	}
	identified, why := f.Words()
	one := !slices.ContainsFunc(f.Members, func(i int) bool { return f.listeners[i] != f.listeners[f.Members[0]] })
	f.names = identified || one
	for _, i := range []int{atCluster, atRawCluster, atLocal, atHost, atRemote, atAuthority} {
		f.names = f.names || f.Has(i)
	}
	switch {
	case f.names:
	case why != nil:
		log.hint(why.Error())
	default:
		log.hint("a format does not contain the destination; add %KUMA_DESTINATION_SERVICE%, " +
			"%UPSTREAM_CLUSTER%, or %UPSTREAM_HOST%")
	}
}

// addressed matches the address that begins each line in a FIFO for a collector; the collector's
// lines do not contain it.
var addressed = regexp.MustCompile(`^[^ %;]+:[0-9]+;`)

func withoutPrefix(file, text string) string {
	if base := path.Base(file); strings.HasPrefix(base, "nearside-") && strings.HasSuffix(base, ".fifo") {
		return text[len(addressed.FindString(text)):]
	}
	return text
}

// Readable returns the logs that can be read, and an error if there is none.
func (u *Usage) Readable() ([]*Log, error) {
	var out []*Log
	var reasons []string
	for _, l := range u.Logs {
		if l.Reason == "" {
			out = append(out, l)
			continue
		}
		where := l.Path
		if where == "" {
			where = "a logger"
		}
		reasons = append(reasons, where+": "+l.Reason)
	}
	switch {
	case len(u.Logs) == 0:
		return nil, ErrNotLogged
	case len(out) == 0:
		return nil, fmt.Errorf("no log of the proxy is readable:\n%s", strings.Join(reasons, "\n"))
	}
	return out, nil
}

// ErrNotLogged reports that the proxy's config has no access loggers.
var ErrNotLogged = errors.New("the proxy has no access loggers")
