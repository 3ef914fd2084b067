package draft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Fault is a resource that breaks Envoy's field rules, or that could not be sealed. The others of the draft are not
// harmed.
type Fault struct {
	Type string // type URL
	Name string
	Err  error
	// Left is true where the resource has no wire form, so that it is not in the config. Else it is, and must be held
	// back: were it left out, the client would lose the form of it that it has.
	Left bool
}

// Error names the resource, what is wrong with it and what follows.
func (f Fault) Error() string {
	follows := "Envoy would refuse it"
	if f.Left {
		follows = "it is left out"
	}
	return fmt.Sprintf("%s %q: %v: %s", shortType(f.Type), f.Name, f.Err, follows)
}

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Sealer packs, validates, sorts and hashes drafts. A large config is made and sealed in parts, each of which fits the
// caches of a processor and whose memory the next one can use.
//
// Resources whose message breaks Envoy's own field rules (those that its API carries as validation annotations) are
// returned as faults. Of several resources with one name the first is kept.
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
		b, err := appendCluster(s.scratch[:0], c, strict)
		if err != nil {
			s.fault(rc, c.Message.GetName(), err)
			b, err = appendCluster(b[:0], c, loose)
		}
		s.add(rc, c.Message.GetName(), b, err)
	}
	for _, l := range d.Listeners {
		b, err := appendListener(s.scratch[:0], l, &s.filters, strict)
		if err != nil {
			s.fault(rl, l.Message.GetName(), err)
			b, err = appendListener(b[:0], l, &s.filters, loose)
		}
		s.add(rl, l.Message.GetName(), b, err)
	}
	for _, e := range d.Endpoints {
		s.addMessage(re, e.GetClusterName(), e)
	}
	for _, r := range d.Routes {
		s.addMessage(rr, r.GetName(), r)
	}
}

func (s *Sealer) addMessage(rank int, name string, m proto.Message) {
	b, err := appendMessage(s.scratch[:0], m, strict)
	if err != nil {
		s.fault(rank, name, err)
		b, err = appendMessage(b[:0], m, loose)
	}
	s.add(rank, name, b, err)
}

func (s *Sealer) fault(rank int, name string, err error) {
	s.faults = append(s.faults, Fault{Type: Types[rank], Name: name, Err: err})
}

// Finish returns the config and what is wrong in it. The sealer must not be used afterwards.
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

// add takes the wire form of a resource, which lies in the scratch buffer, or why there is none: then its fault stands
// last.
func (s *Sealer) add(rank int, name string, body []byte, err error) {
	s.scratch = body
	if err != nil {
		last := &s.faults[len(s.faults)-1]
		last.Err, last.Left = err, true
		return
	}
	r := NewResource(name, slices.Clone(body))
	if s.intern != nil {
		r = s.intern(Types[rank], r)
	}
	s.out.Resources[rank] = append(s.out.Resources[rank], r)
}
