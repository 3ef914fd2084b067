package reachable

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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

// Bounds of what is read and remembered.
const (
	maxLine     = 64 << 10 // bytes
	maxVerdicts = 10_000   // what lines have come to, by what they say
	maxUnknown  = 100      // names that are no services of the mesh
	maxDirect   = 1000     // addresses that were dialled past the mesh
)

// ReadOptions say which lines count.
type ReadOptions struct {
	Since time.Time // older lines are left out; zero for none
}

// Lines counts lines by what became of them.
type Lines struct {
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
	Lines       int
	Shared      int       // of these, lines that may be about another service of the same name
	First, Last time.Time // zero where no line has a time
}

func (s *Seen) add(at time.Time) {
	s.Lines++
	if at.IsZero() {
		return
	}
	if s.First.IsZero() || at.Before(s.First) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
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
func (t *Traffic) ReadFile(path string, logs []*Log) (unread []error, err error) {
	r, err := rotation.NewReader(rotation.ReaderOptions{Path: path, Since: t.options.Since, MaxLine: maxLine})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t.watch(logs)
	long := false
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r.Stats().Unread, nil
		case err != nil:
			return nil, err
		}
		first := !long
		long = line.More
		switch {
		case !first:
		case line.More:
			t.Lines.Read++
			t.Lines.Long++
		default:
			t.Line(line.Text, logs)
		}
	}
}

// Read reads lines of some logs.
func (t *Traffic) Read(r io.Reader, logs []*Log) error {
	t.watch(logs)
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case long:
			t.Lines.Read++
			t.Lines.Long++
		case len(line) > 0:
			t.Line(bytes.TrimSuffix(line, []byte("\n")), logs)
		}
		if err != nil {
			return nil
		}
	}
}

// watch notes whose traffic is in logs that are read.
func (t *Traffic) watch(logs []*Log) {
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
func (t *Traffic) Line(line []byte, logs []*Log) {
	t.Lines.Read++
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
		t.Lines.Foreign++
		return
	}
	if !t.options.Since.IsZero() {
		switch {
		case at.IsZero():
			t.Lines.NoTime++
			return
		case at.Before(t.options.Since):
			t.Lines.Old++
			return
		}
	}
	v, ok := t.verdicts[key.String()]
	if !ok {
		var votes []vote
		for _, m := range found {
			votes = append(votes, t.vote(m.f, m.e))
		}
		v = t.decide(votes)
		if len(t.verdicts) >= maxVerdicts {
			clear(t.verdicts)
		}
		t.verdicts[key.String()] = v
	}
	t.count(v, at)
}

func (t *Traffic) count(v verdict, at time.Time) {
	switch v.fate {
	case used:
		t.Lines.Used++
		for _, i := range v.backends {
			if t.hits[i] == nil {
				t.hits[i] = &Seen{}
			}
			t.hits[i].add(at)
			if len(v.backends) > 1 {
				t.hits[i].Shared++
			}
		}
	case instance:
		keep(t, t.direct, v.to, maxDirect, &t.Lines.Outside, at)
	case unknown:
		keep(t, t.unknown, clip.Value(v.name), maxUnknown, &t.Lines.Unknown, at)
	case outside:
		t.Lines.Outside++
	case arrived:
		t.Lines.Inbound++
	case ambiguous:
		t.Lines.Ambiguous++
	default:
		t.Lines.Foreign++
	}
}

// keep remembers so many, and counts lines about more.
func keep[K comparable](t *Traffic, in map[K]*Seen, k K, most int, counter *int, at time.Time) {
	if in[k] == nil {
		if len(in) >= most {
			t.Lines.More++
			return
		}
		in[k] = &Seen{}
	}
	*counter++
	in[k].add(at)
}
