package draft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Fault is a resource that could not be sealed. The others of the draft are not harmed.
type Fault struct {
	Type string // type URL
	Name string
	Err  error
}

// Error names the resource and what is wrong with it.
func (f Fault) Error() string { return fmt.Sprintf("%s %q: %v", shortType(f.Type), f.Name, f.Err) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Sealer packs, validates, sorts and hashes drafts. A large config is made and sealed in parts, each of which fits the
// caches of a processor and whose memory the next one can use.
//
// Resources whose message breaks Envoy's own field rules (those that its API carries as validation annotations) are
// left out and returned as faults. Of several resources with one name the first is kept.
type Sealer struct {
	intern  func(string, *Resource) *Resource
	out     *Sealed
	faults  []Fault
	scratch []byte
	filters []byte
}

// NewSealer returns a sealer of one config. intern, when not nil, may replace a resource by an equal one that is
// already in use.
func NewSealer(intern func(typeURL string, r *Resource) *Resource) *Sealer {
	return &Sealer{intern: intern, out: &Sealed{}}
}

// Grow makes room for n more resources of a type.
func (s *Sealer) Grow(typeURL string, n int) {
	rank := Rank(typeURL)
	s.out.Resources[rank] = slices.Grow(s.out.Resources[rank], n)
}

// Add seals what a draft holds. Nothing of the draft is kept: its memory may be used again.
func (s *Sealer) Add(d *Draft) {
	rc, rl, re, rr := Rank(TypeCluster), Rank(TypeListener), Rank(TypeEndpoint), Rank(TypeRoute)
	for rank, list := range d.Ready {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	for _, c := range d.Clusters {
		b, err := appendCluster(s.scratch[:0], c)
		s.add(rc, c.Message.GetName(), b, err)
	}
	for _, l := range d.Listeners {
		b, err := appendListener(s.scratch[:0], l, &s.filters)
		s.add(rl, l.Message.GetName(), b, err)
	}
	for _, e := range d.Endpoints {
		b, err := appendMessage(s.scratch[:0], e)
		s.add(re, e.GetClusterName(), b, err)
	}
	for _, r := range d.Routes {
		b, err := appendMessage(s.scratch[:0], r)
		s.add(rr, r.GetName(), b, err)
	}
}

// Finish returns the config and what was left out of it. The sealer must not be used afterwards.
func (s *Sealer) Finish() (*Sealed, []Fault) {
	for rank := range s.out.Resources {
		s.out.Resources[rank], s.out.Versions[rank] = Order(s.out.Resources[rank])
	}
	return s.out, s.faults
}

// NewResource seals the wire form of a message. The body must not be changed afterwards.
func NewResource(name string, body []byte) *Resource {
	sum := sha256.Sum256(body)
	var version [32]byte
	hex.Encode(version[:], sum[:16])
	return &Resource{Name: name, Version: string(version[:]), Body: body}
}

// Order sorts a list of sealed resources by name, drops later duplicates, and returns it with the hash over its names
// and versions. The list is sorted in place.
func Order(list []*Resource) ([]*Resource, string) {
	byName := func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		slices.SortStableFunc(list, byName)
	}
	list = slices.CompactFunc(list, func(a, b *Resource) bool { return a.Name == b.Name })
	h := sha256.New()
	b := make([]byte, 0, 4096)
	for _, r := range list {
		b = append(b, r.Name...)
		b = append(b, 0)
		b = append(b, r.Version...)
		if len(b) > 4000 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return list, hex.EncodeToString(h.Sum(nil)[:16])
}

// add takes the wire form of a resource, which lies in the scratch buffer, or what is wrong with it.
func (s *Sealer) add(rank int, name string, body []byte, err error) {
	s.scratch = body
	if err != nil {
		s.faults = append(s.faults, Fault{Type: Types[rank], Name: name, Err: err})
		return
	}
	r := NewResource(name, slices.Clone(body))
	if s.intern != nil {
		r = s.intern(Types[rank], r)
	}
	s.out.Resources[rank] = append(s.out.Resources[rank], r)
}
