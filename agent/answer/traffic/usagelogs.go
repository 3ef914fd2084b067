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

// The operators that are asked for, by their index.
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
	Path string // "" for loggers that write none
	// Reason says why its lines cannot be read, "" where they can, and Hints what is not told by some
	// of its formats.
	Reason string
	Hints  []string

	families []*family
}

// family is loggers of one log with formats that differ in words alone.
type family struct {
	*logline.Family
	outlets []*outlet // by member of the formats
	out     bool      // of traffic that leaves
	names   bool      // its lines say where traffic went
	full    map[*outlet]bool
}

// Usage counts the lines of one proxy by the services that they are about.
type Usage struct {
	Logs []*Log // that the config names, sorted by path

	backends *explain.Backends
	outlets  []*outlet
	lookup   lookup
	since    time.Time // older lines are not counted; zero for none

	Lines    LineCounts
	hits     map[int]*Seen            // by backend
	direct   map[netip.AddrPort]*Seen // instances that were dialled past the mesh
	unknown  map[string]*Seen
	verdicts map[string]verdict
}

// NewUsage reads the config of a proxy that sees the services in b. Lines older than since are not
// counted; the zero time counts all.
func NewUsage(config Config, b *explain.Backends, since time.Time) (*Usage, error) {
	list, err := outlets(config, b)
	if err != nil {
		return nil, err
	}
	u := &Usage{backends: b, outlets: list, since: since, lookup: newLookup(b), hits: map[int]*Seen{},
		direct: map[netip.AddrPort]*Seen{}, unknown: map[string]*Seen{}, verdicts: map[string]verdict{}}
	type entry struct {
		outlet *outlet
		logger logline.Logger
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
			case x.way == past && strings.HasPrefix(x.name, prefixPassthrough):
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
			log.Reason = "it writes no lines to a file"
			continue
		}
		for _, e := range entries {
			if op := e.logger.Format.Forgeable(); op != "" && log.Reason == "" {
				log.Reason = fmt.Sprintf("a text format of it has %s, with which clients can forge its lines; "+
					"give a JSON format, or remove it", op)
			}
		}
		if log.Reason != "" {
			continue
		}
		for _, out := range []bool{true, false} {
			var formats []logline.Format
			var of []entry
			for _, e := range entries {
				if out == (e.outlet.way != inbound) {
					formats, of = append(formats, e.logger.Format), append(of, e)
				}
			}
			families, faults := logline.Families(formats, operators...)
			for i, err := range faults {
				if err != nil {
					log.hint(fmt.Sprintf("%s: %v", of[i].outlet.name, err))
				}
			}
			for _, f := range families {
				x := &family{Family: f, outlets: make([]*outlet, len(formats)), out: out, full: map[*outlet]bool{}}
				for _, i := range f.Members {
					x.outlets[i] = of[i].outlet
					if !of[i].logger.Filtered && !of[i].logger.Listener {
						x.full[of[i].outlet] = true
					}
				}
				x.tell(log)
				log.families = append(log.families, x)
			}
		}
		if !slices.ContainsFunc(log.families, func(f *family) bool { return f.out }) {
			log.Reason = "nothing of the traffic that leaves the workload is logged there"
			if len(log.Hints) > 0 {
				log.Reason = strings.Join(log.Hints, "; ")
			}
		}
	}
	slices.SortFunc(u.Logs, func(a, b *Log) int { return strings.Compare(a.Path, b.Path) })
	return u, nil
}

// external is what the passthrough has in the place of a service.
const external = "external"

func (l *Log) hint(text string) {
	if len(l.Hints) < maxHints && !slices.Contains(l.Hints, text) {
		l.Hints = append(l.Hints, text)
	}
}

// maxHints bounds what is said of the formats of one log.
const maxHints = 8

// tell finds out whether the lines of a family say where traffic went, and says why they do not.
func (f *family) tell(log *Log) {
	if !f.out {
		return
	}
	told, why := f.Words()
	one := !slices.ContainsFunc(f.Members, func(i int) bool { return f.outlets[i] != f.outlets[f.Members[0]] })
	f.names = told || one
	for _, i := range []int{atCluster, atRawCluster, atLocal, atHost, atRemote, atAuthority} {
		f.names = f.names || f.Has(i)
	}
	switch {
	case f.names:
	case why != nil:
		log.hint(why.Error())
	default:
		log.hint("a format does not say where traffic went; add %KUMA_DESTINATION_SERVICE%, " +
			"%UPSTREAM_CLUSTER% or %UPSTREAM_HOST%")
	}
}

// addressed is the beginning of the lines in a FIFO for a collector, which does not get it.
var addressed = regexp.MustCompile(`^[^ %;]+:[0-9]+;`)

func withoutPrefix(file, text string) string {
	if base := path.Base(file); strings.HasPrefix(base, "nearside-") && strings.HasSuffix(base, ".fifo") {
		return text[len(addressed.FindString(text)):]
	}
	return text
}

// Readable returns the logs whose lines can be read, and an error where there is none.
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
		return nil, fmt.Errorf("no log of the proxy can be read:\n%s", strings.Join(reasons, "\n"))
	}
	return out, nil
}

// ErrNotLogged is that of a proxy whose config has no access loggers.
var ErrNotLogged = errors.New("the proxy logs nothing")
