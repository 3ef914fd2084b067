package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/rotation"
)

// StatsOptions says which lines to count. Paths, By, Note, and Failed are required.
type StatsOptions struct {
	Paths   []string // of the active files
	Filter  Filter   // of access logs
	Formats map[string]*Formats
	By      string // field: see [logfields.Named]
	// Step is the length of the intervals by which lines are counted if By is [logfields.Time], in
	// whole seconds; 0: each time is a value.
	Step    time.Duration
	Workers int // as in [ShowOptions]
	Note    func(text string)
	Failed  func(path string, err error)
}

// Limits of the values of a field.
const (
	maxGroups   = 1000           // in the result
	maxCounted  = 10_000         // while counting, for each goroutine
	maxGrouped  = 256            // bytes of a value
	maxDuration = 1 << 40        // ms; longer durations count as this
	subBuckets  = 1 << 7         // of each power of two above exact
	exact       = 2 * subBuckets // durations below it have their own bucket
)

// group counts the lines with one value.
type group struct {
	lines, received, sent uint64
	codes                 [10]uint64 // by class; 0: no response
	durations             []uint32   // by bucket
	timed                 uint64     // lines with a duration
}

// tally counts the lines of one goroutine.
type tally struct {
	groups         map[string]*group
	lines          uint64
	unknown, other uint64
	span           Span
}

// Stats counts the lines of files by the value of a field. The only error is an invalid field.
func Stats(ctx context.Context, o StatsOptions) (*api.LogStats, error) {
	by, err := logfields.Named(o.By)
	if err != nil {
		return nil, err
	}
	total := &tally{groups: map[string]*group{}}
	for _, path := range o.Paths {
		fields := o.Formats[path].compile(&o.Filter, append([]logfields.Field{by}, counted()...)...)
		var selectors []*selector
		var tallies []*tally
		var mu sync.Mutex
		s := &scanner{path: path, since: o.Filter.Since, workers: o.Workers,
			begin: func(int) func([]byte, rotation.Line) []byte {
				x, t := &selector{filter: &o.Filter, reader: fields.NewReader()}, &tally{groups: map[string]*group{}}
				mu.Lock()
				selectors, tallies = append(selectors, x), append(tallies, t)
				mu.Unlock()
				return func(b []byte, line rotation.Line) []byte {
					if x.shows(line) && !line.More {
						t.count(x.values(line), &o)
					}
					return b
				}
			},
		}
		err := s.scan(ctx)
		if err != nil {
			o.Failed(path, err)
		}
		var skip skipped
		for i := range selectors {
			total.add(tallies[i])
			skip.add(&selectors[i].skipped)
		}
		if err == nil || s.stats.Lines > 0 {
			report(o.Note, path, skip, &s.stats)
		}
	}
	return total.result(&o), nil
}

// Indexes of the fields that are counted, after those of a filter.
const (
	atBy = iota
	atWhen
	atStatus
	atDuration
	atReceived
	atSent
	atPath
)

// counted returns the fields from atWhen on.
func counted() (out []logfields.Field) {
	for _, name := range [...]string{logfields.Time, logfields.Status, logfields.Duration, logfields.Received,
		logfields.Sent, logfields.Path} {
		f, _ := logfields.Named(name)
		out = append(out, f)
	}
	return out
}

// count counts a line. Without a name of its route, the path without its query is the route.
func (t *tally) count(v []logfields.Value, o *StatsOptions) {
	t.lines++
	if at, ok := parseTime(&v[atWhen]); ok {
		t.span.add(at)
	}
	key := v[atBy]
	if o.Step > 0 && o.By == logfields.Time {
		at, ok := parseTime(&v[atWhen])
		if !ok {
			t.unknown++
			return
		}
		key = logfields.Value{State: logfields.Known, Text: at.UTC().Truncate(o.Step).AppendFormat(nil, time.RFC3339)}
	}
	if o.By == logfields.Route && (key.State != logfields.Known || !hasValue(string(key.Text))) {
		key = v[atPath]
		if i := bytes.IndexByte(key.Text, '?'); i >= 0 {
			key.Text = key.Text[:i]
		}
	}
	if key.State != logfields.Known {
		t.unknown++
		return
	}
	text := key.Text[:min(len(key.Text), maxGrouped)]
	g := t.groups[string(text)]
	if g == nil {
		if len(t.groups) >= maxCounted {
			t.other++
			return
		}
		g = &group{}
		t.groups[string(text)] = g
	}
	g.lines++
	if code, ok := parseCode(&v[atStatus]); ok {
		g.codes[code/100]++
	}
	g.received += number(&v[atReceived])
	g.sent += number(&v[atSent])
	if d := v[atDuration]; d.State == logfields.Known && hasValue(string(d.Text)) {
		if n, err := strconv.ParseFloat(string(d.Text), 64); err == nil && n >= 0 {
			g.time(uint64(min(n, maxDuration)))
		}
	}
}

// number returns a number of bytes, or 0.
func number(v *logfields.Value) uint64 {
	n := uint64(0)
	for _, c := range v.Text {
		if c < '0' || c > '9' || n > 1<<56 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// bucket returns the bucket of a duration in milliseconds, and low the smallest duration in a
// bucket.
func bucket(ms uint64) int {
	shift := 0
	for ms>>shift >= exact {
		shift++
	}
	return shift*subBuckets + int(ms>>shift)
}

func low(i int) float64 {
	shift := max(0, i/subBuckets-1)
	return float64(uint64(i-shift*subBuckets) << shift)
}

func (g *group) time(ms uint64) {
	i := bucket(ms)
	if i >= len(g.durations) {
		g.durations = slices.Grow(g.durations, i+1-len(g.durations))[:i+1]
	}
	g.durations[i]++
	g.timed++
}

// quantile returns the duration that a part of the lines does not exceed, or nil.
func (g *group) quantile(q float64) *float64 {
	if g.timed == 0 {
		return nil
	}
	rank := uint64(q*float64(g.timed-1)) + 1
	for i, n := range g.durations {
		if rank <= uint64(n) {
			ms := low(i)
			return &ms
		}
		rank -= uint64(n)
	}
	return nil // unreachable
}

// add adds the counters of another goroutine.
func (t *tally) add(more *tally) {
	t.lines += more.lines
	t.unknown += more.unknown
	t.other += more.other
	t.span.add(more.span.First)
	t.span.add(more.span.Last)
	for key, x := range more.groups {
		g := t.groups[key]
		if g == nil {
			t.groups[key] = x
			continue
		}
		g.lines, g.received, g.sent, g.timed = g.lines+x.lines, g.received+x.received, g.sent+x.sent, g.timed+x.timed
		for i, n := range x.codes {
			g.codes[i] += n
		}
		if n := len(x.durations) - len(g.durations); n > 0 {
			g.durations = append(g.durations, make([]uint32, n)...)
		}
		for i, n := range x.durations {
			g.durations[i] += n
		}
	}
}

// result returns the counters as a document.
func (t *tally) result(o *StatsOptions) *api.LogStats {
	times := t.span.times()
	out := &api.LogStats{By: o.By, Lines: t.lines, First: times.First, Last: times.Last, Items: []api.LogGroup{},
		Unknown: t.unknown, Other: t.other}
	first := t.span.First
	if !o.Filter.Since.IsZero() {
		first = o.Filter.Since
	}
	seconds := max(1, t.span.Last.Sub(first).Seconds())
	intervals := o.Step > 0 && o.By == logfields.Time
	if intervals {
		seconds = o.Step.Seconds()
	}
	keys := slices.SortedFunc(maps.Keys(t.groups), func(a, b string) int {
		if intervals {
			return cmp.Compare(b, a) // the latest ones, if there are too many
		}
		return cmp.Or(cmp.Compare(t.groups[b].lines, t.groups[a].lines), cmp.Compare(a, b))
	})
	for i, key := range keys {
		g := t.groups[key]
		if i >= maxGroups {
			out.Other += g.lines
			continue
		}
		x := api.LogGroup{Value: clip.Printable(key), Lines: g.lines, PerSecond: float64(g.lines) / seconds,
			Status: map[string]uint64{}, P50: g.quantile(0.5), P95: g.quantile(0.95), P99: g.quantile(0.99),
			Received: g.received, Sent: g.sent}
		for class, n := range g.codes {
			switch {
			case n == 0:
			case class == 0:
				x.Status["0"] = n
			default:
				x.Status[fmt.Sprintf("%dxx", class)] = n
			}
		}
		out.Items = append(out.Items, x)
	}
	if intervals {
		slices.Reverse(out.Items)
	}
	return out
}
