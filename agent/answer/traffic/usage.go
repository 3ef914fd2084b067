package traffic

import (
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/rotation"
)

// Bounds of what is remembered.
const (
	maxVerdicts = 10_000 // what lines have come to, by what they say
	maxUnknown  = 100    // names that are no services of the mesh
	maxDirect   = 1000   // addresses that were dialled past the mesh
)

// LineCounts counts lines by what became of them.
type LineCounts struct {
	Read    int `json:"read"`
	Used    int `json:"used"`    // of traffic to services of the mesh
	Outside int `json:"outside"` // of traffic to addresses that no service of the mesh has
	Inbound int `json:"inbound"` // of traffic that arrived
	Old     int `json:"old"`     // from before --since
	// What cannot be told, by its reason: lines of no format of the proxy, such as those of others;
	// lines that may be about several services; lines about names that are no services of the mesh, or
	// about more addresses and names than are remembered; lines without a time where that is asked
	// for; and lines that are too long.
	Foreign   int `json:"foreign"`
	Ambiguous int `json:"ambiguous"`
	Unknown   int `json:"unknown"`
	More      int `json:"more"`
	NoTime    int `json:"noTime"`
	Long      int `json:"long"`
}

// Seen is how often and when.
type Seen struct {
	Lines  int
	Shared int // of these, lines that may be about another service of the same name
	Span
}

func (s *Seen) add(at time.Time) {
	s.Lines++
	s.Span.add(at)
}

// lookup finds services by address, name and cluster.
type lookup struct {
	virtual, instance map[netip.AddrPort][]int
	named, cluster    map[string][]int
}

func newLookup(b *explain.Backends) lookup {
	l := lookup{map[netip.AddrPort][]int{}, map[netip.AddrPort][]int{}, map[string][]int{}, map[string][]int{}}
	for i := range b.Items {
		if excluded(&b.Items[i]) {
			continue
		}
		l.named[b.Items[i].Name] = append(l.named[b.Items[i].Name], i)
		l.cluster[b.Items[i].Cluster] = append(l.cluster[b.Items[i].Cluster], i)
		for _, a := range b.Items[i].Addresses {
			l.virtual[a] = append(l.virtual[a], i)
		}
		for _, a := range b.Items[i].Endpoints {
			l.instance[a] = append(l.instance[a], i)
		}
	}
	return l
}

func listenersOf(c Config) map[string]json.RawMessage { return c[envoy.KindListener.URL()] }

// ReadFile reads a file with those that were rotated from it. The lines are of some logs. It
// returns what of it was not read.
func (u *Usage) ReadFile(path string, logs []*Log) (unread []error, err error) {
	r, err := rotation.NewReader(rotation.ReaderOptions{Path: path, Since: u.since, MaxLine: maxLine})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	u.watch(logs)
	if err := eachLine(r.Next, u.take(logs)); err != nil {
		return nil, err
	}
	return r.Stats().Unread, nil
}

// Read reads lines of some logs.
func (u *Usage) Read(r io.Reader, logs []*Log) error {
	u.watch(logs)
	return eachLine(stream(r), u.take(logs))
}

// take returns what counts the lines of some logs.
func (u *Usage) take(logs []*Log) func(text []byte, long bool) {
	return func(text []byte, long bool) {
		if long {
			u.Lines.Read++
			u.Lines.Long++
		} else {
			u.Line(text, logs)
		}
	}
}

// watch notes whose traffic is in logs that are read.
func (u *Usage) watch(logs []*Log) {
	for _, l := range logs {
		for _, f := range l.families {
			if !f.names || !f.out {
				continue
			}
			for _, i := range f.Members {
				o := f.outlets[i]
				if o.logged = max(o.logged, some); f.full[o] {
					o.logged = all
				}
			}
		}
	}
}

// fate is what becomes of a line.
type fate int

const (
	used fate = iota
	outside
	instance
	arrived
	foreign
	ambiguous
	unknown
)

// verdict is what a line has come to.
type verdict struct {
	fate     fate
	backends []int
	to       netip.AddrPort // of an instance
	name     string         // that is no service
}

// Line counts one line of some logs.
func (u *Usage) Line(line []byte, logs []*Log) {
	u.Lines.Read++
	var key strings.Builder
	var at time.Time
	type match struct {
		f *family
		e logline.Entry
	}
	var found []match
	for _, l := range logs {
		for n, f := range l.families {
			e, ok := f.Read(line)
			if !ok {
				continue
			}
			found = append(found, match{f, e})
			if when, err := time.Parse(time.RFC3339Nano, e.Values[atTime]); err == nil {
				at = when
			}
			key.WriteString(l.Path + "\x00" + string(rune('0'+n)))
			for _, v := range append(slices.Clone(e.Values[atTime+1:]), e.Words...) {
				key.WriteString("\x00" + v)
			}
			key.WriteByte(1)
		}
	}
	if len(found) == 0 {
		u.Lines.Foreign++
		return
	}
	if !u.since.IsZero() {
		switch {
		case at.IsZero():
			u.Lines.NoTime++
			return
		case at.Before(u.since):
			u.Lines.Old++
			return
		}
	}
	v, ok := u.verdicts[key.String()]
	if !ok {
		var votes []vote
		for _, m := range found {
			votes = append(votes, u.vote(m.f, m.e))
		}
		v = u.decide(votes)
		if len(u.verdicts) >= maxVerdicts {
			clear(u.verdicts)
		}
		u.verdicts[key.String()] = v
	}
	u.count(v, at)
}

func (u *Usage) count(v verdict, at time.Time) {
	switch v.fate {
	case used:
		u.Lines.Used++
		for _, i := range v.backends {
			if u.hits[i] == nil {
				u.hits[i] = &Seen{}
			}
			u.hits[i].add(at)
			if len(v.backends) > 1 {
				u.hits[i].Shared++
			}
		}
	case instance:
		keep(u, u.direct, v.to, maxDirect, &u.Lines.Outside, at)
	case unknown:
		keep(u, u.unknown, clip.Value(v.name), maxUnknown, &u.Lines.Unknown, at)
	case outside:
		u.Lines.Outside++
	case arrived:
		u.Lines.Inbound++
	case ambiguous:
		u.Lines.Ambiguous++
	default:
		u.Lines.Foreign++
	}
}

// keep remembers so many, and counts lines about more.
func keep[K comparable](u *Usage, in map[K]*Seen, k K, most int, counter *int, at time.Time) {
	if in[k] == nil {
		if len(in) >= most {
			u.Lines.More++
			return
		}
		in[k] = &Seen{}
	}
	*counter++
	in[k].add(at)
}
