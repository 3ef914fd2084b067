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

// Limits of the state of a Usage.
const (
	maxVerdicts = 10_000 // cached verdicts, by the values of a line
	maxUnknown  = 100    // names that are not services of the mesh
	maxDirect   = 1000   // dialed addresses of instances
)

// LineCounts counts lines by their outcome.
type LineCounts struct {
	Read    int `json:"read"`
	Used    int `json:"used"`    // traffic to services of the mesh
	Outside int `json:"outside"` // traffic to addresses outside the mesh
	Inbound int `json:"inbound"` // traffic to the workload
	Old     int `json:"old"`     // lines before --since
	// Lines that are not attributed, by reason: lines that match no format of the proxy; lines that
	// match several services; names that are not services of the mesh; lines beyond the limits of
	// remembered addresses and names; lines without a time although --since is given; and lines
	// that are too long.
	Foreign   int `json:"foreign"`
	Ambiguous int `json:"ambiguous"`
	Unknown   int `json:"unknown"`
	More      int `json:"more"`
	NoTime    int `json:"noTime"`
	Long      int `json:"long"`
}

// Seen counts lines with their time span.
type Seen struct {
	Lines  int
	Shared int // lines that may be about another service of the same name
	Span
}

func (s *Seen) add(at time.Time) {
	s.Lines++
	s.Span.add(at)
}

// lookup finds the indexes of services by address, name, and cluster.
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

// ReadFile counts the lines of a file and its rotated backups, written by logs. It returns the
// errors of backups that it could not read completely.
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

// Read counts the lines of r, which logs wrote.
func (u *Usage) Read(r io.Reader, logs []*Log) error {
	u.watch(logs)
	return eachLine(stream(r), u.take(logs))
}

// take returns a function that counts lines of logs.
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

// watch records the listeners whose traffic is in the logs.
func (u *Usage) watch(logs []*Log) {
	for _, l := range logs {
		for _, f := range l.families {
			if !f.names || !f.out {
				continue
			}
			for _, i := range f.Members {
				o := f.listeners[i]
				if o.logged = max(o.logged, some); f.full[o] {
					o.logged = all
				}
			}
		}
	}
}

// outcome is the class of a line.
type outcome int

const (
	used outcome = iota
	outside
	instance
	arrived
	foreign
	ambiguous
	unknown
)

// verdict is the interpretation of a line.
type verdict struct {
	outcome  outcome
	backends []int
	to       netip.AddrPort // of an instance
	name     string         // name of an unknown service
}

// Line counts one line of logs.
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
	switch v.outcome {
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
		countUpTo(u, u.direct, v.to, maxDirect, &u.Lines.Outside, at)
	case unknown:
		countUpTo(u, u.unknown, clip.Value(v.name), maxUnknown, &u.Lines.Unknown, at)
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

// countUpTo counts a line under k if k is known or the map has fewer than most keys. Otherwise it
// counts the line as More.
func countUpTo[K comparable](u *Usage, in map[K]*Seen, k K, most int, counter *int, at time.Time) {
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
