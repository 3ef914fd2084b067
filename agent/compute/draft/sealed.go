// Package draft holds a proxy's config while it is made, and its sealing.
//
// A draft is Envoy's own messages, not yet packed into Any, keyed by mesh names. It is edited in
// place by the steps that make it and sealed once: packed, sorted, validated and hashed. The
// package is pure.
package draft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Type URLs of the resources that an agent serves.
const (
	TypeCluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	TypeEndpoint = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	TypeListener = "type.googleapis.com/envoy.config.listener.v3.Listener"
	TypeRoute    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	TypeSecret   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Types lists the type URLs in make-before-break order: what is referred to comes before what
// refers to it (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, "Eventual
// consistency considerations"). The index of a type in it is its rank.
var Types = [...]string{TypeSecret, TypeCluster, TypeEndpoint, TypeListener, TypeRoute}

// NumTypes is the number of types served.
const NumTypes = len(Types)

// Rank returns the index of a type URL in Types, -1 for a type that is not served.
func Rank(typeURL string) int { return slices.Index(Types[:], typeURL) }

// Ranks of the types.
const (
	RankSecret   = int(envoy.KindSecret)
	RankCluster  = int(envoy.KindCluster)
	RankEndpoint = int(envoy.KindEndpoint)
	RankListener = int(envoy.KindListener)
	RankRoute    = int(envoy.KindRoute)
)

// Resource is one sealed xDS resource. It is immutable and shared between proxies that have the
// same bytes.
type Resource = envoy.Resource

// ResourceID names a resource of a proxy's config.
type ResourceID struct {
	TypeURL string
	Name    string
}

// Sealed is the finished config of one proxy, immutable.
type Sealed struct {
	// Resources holds the resources by rank of their type (see Types), each list sorted by name.
	Resources envoy.Snapshot
	// Versions holds, by rank, a content hash over names and versions of the list; "" never occurs.
	Versions [NumTypes]string
	// Pipes are what its loggers write to and the agent reads, sorted, each once. They are no part of
	// Resources or Versions.
	Pipes []Pipe
}

// With returns the config with other resources of a rank, as [Order] returns them.
func (s *Sealed) With(rank int, list []*Resource, version string) *Sealed {
	out := *s
	out.Resources[rank], out.Versions[rank] = list, version
	return &out
}

// Sharing returns the config with the lists of another one where they are the same, and the other
// one where all is.
func (s *Sealed) Sharing(other *Sealed) *Sealed {
	if s.Versions == other.Versions && SamePipes(s.Pipes, other.Pipes) {
		return other
	}
	out := *s
	for rank, version := range s.Versions {
		if version == other.Versions[rank] {
			out.Resources[rank] = other.Resources[rank]
		}
	}
	return &out
}

// Compare calls f for every name whose bytes differ between two lists that are sorted by name, in
// the order of the names. A resource is nil where its list has none of that name.
func Compare(a, b []*Resource, f func(a, b *Resource)) {
	for len(a) > 0 || len(b) > 0 {
		var x, y *Resource
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].Name, b[0].Name)
		}
		if order <= 0 {
			x, a = a[0], a[1:]
		}
		if order >= 0 {
			y, b = b[0], b[1:]
		}
		if order != 0 || x != y && x.Version != y.Version {
			f(x, y)
		}
	}
}

// Fault is a resource that breaks Envoy's field rules, or that could not be sealed. The others of
// the draft are not harmed.
type Fault struct {
	Type string // type URL
	Name string
	Err  error
	// Left is true where the resource has no wire form, so that it is not in the config. Else it is,
	// and must be held back: were it left out, the client would lose the form of it that it has.
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

// Sealer packs, validates, sorts and hashes drafts. A large config is made and sealed in parts,
// each of which fits the caches of a processor and whose memory the next one can use.
//
// Resources whose message breaks Envoy's own field rules (those that its API carries as validation
// annotations) are returned as faults. Of several resources with one name the first is kept.
type Sealer struct {
	// Inline leaves routes in their listeners, which is the form that plugins and patches edit. No
	// Envoy is served it.
	Inline bool

	pool    *Pool
	out     *Sealed
	faults  []Fault
	scratch []byte
	filters []byte
	names   []string
	headed  []headed // routes with headers, which are the same ones for all
	headers *Headers
}

// NewSealer returns a sealer of one config, which shares the resources of a pool. A nil pool is
// replaced by a new one.
func NewSealer(pool *Pool) *Sealer {
	if pool == nil {
		pool = NewPool()
	}
	s := &Sealer{pool: pool, out: &Sealed{}, names: []string{}}
	for rank := range pool.scratch {
		s.out.Resources[rank] = pool.scratch[rank][:0]
	}
	pool.scratch = [NumTypes][]*Resource{}
	return s
}

// Grow makes room for n more resources of a type.
func (s *Sealer) Grow(typeURL string, n int) {
	rank := Rank(typeURL)
	s.out.Resources[rank] = slices.Grow(s.out.Resources[rank], n)
}

// Add seals what a draft holds. Nothing of the draft is kept: its memory may be used again.
func (s *Sealer) Add(d *Draft) {
	s.out.Pipes = append(s.out.Pipes, d.Pipes...)
	for rank, list := range d.Ready {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	for _, c := range d.Clusters {
		s.add(RankCluster, c.Message.GetName(), func(b []byte, how rigour) ([]byte, error) {
			return appendCluster(b, c, how)
		})
	}
	for _, l := range d.Listeners {
		s.addListener(l)
	}
	for _, e := range d.Endpoints {
		s.add(RankEndpoint, e.GetClusterName(), func(b []byte, how rigour) ([]byte, error) {
			return appendMessage(b, e, how)
		})
	}
	for _, r := range d.Routes {
		s.add(RankRoute, r.GetName(), func(b []byte, how rigour) ([]byte, error) { return appendMessage(b, r, how) })
	}
}

// addListener seals a listener, and the routes of its chains as resources of their own, so that
// Envoy takes other routes without draining the connections of the listener.
func (s *Sealer) addListener(l *Listener) {
	var rds []string
	if !s.Inline {
		s.names = l.routeNames(s.names[:0])
		rds = s.names
	}
	s.add(RankListener, l.Message.GetName(), func(b []byte, how rigour) ([]byte, error) {
		return appendListener(b, l, rds, &s.filters, how)
	})
	for i, name := range rds {
		if name == inline {
			continue
		}
		h, at := l.Chains[i].HTTP, len(s.out.Resources[RankRoute])
		s.add(RankRoute, name, func(b []byte, how rigour) ([]byte, error) { return h.appendRoutes(b, name, how) })
		if h.Headers != nil && len(s.out.Resources[RankRoute]) > at {
			s.headed, s.headers = append(s.headed, headed{at, len(s.scratch) - len(h.Headers.field)}), h.Headers
		}
	}
}

// add seals one resource, whose wire form encode appends. One that breaks a rule is encoded without
// the rules, with a fault.
func (s *Sealer) add(rank int, name string, encode func(b []byte, how rigour) ([]byte, error)) {
	body, err := encode(s.scratch[:0], strict)
	if err != nil {
		fault := Fault{Type: Types[rank], Name: name, Err: err}
		if body, err = encode(body[:0], loose); err != nil {
			fault.Err, fault.Left = err, true
		}
		s.faults = append(s.faults, fault)
	}
	if s.scratch = body; err != nil {
		return
	}
	s.out.Resources[rank] = append(s.out.Resources[rank], s.pool.Seal(rank, name, body))
}

// Finish returns the config and what is wrong in it. The sealer must not be used afterwards.
func (s *Sealer) Finish() (*Sealed, []Fault) {
	for rank, list := range s.out.Resources {
		s.out.Resources[rank], s.out.Versions[rank] = Order(append([]*Resource(nil), list...))
		clear(list)
		s.pool.scratch[rank] = list[:0]
	}
	s.out.Pipes = orderPipes(s.out.Pipes)
	return s.out, s.faults
}

// versionBytes are those of the hash over a body that make its version.
const versionBytes = 16

// NewResource seals the wire form of a message of a rank. The body must not be changed afterwards.
func NewResource(rank int, name string, body []byte) *Resource {
	return envoy.Raw(envoy.Kind(rank), name, versionOfBody(body), body)
}

func versionOfBody(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:versionBytes])
}

// Order sorts a list of sealed resources by name, drops later duplicates, and returns it with the
// hash over its names and versions. The list is sorted in place.
func Order(list []*Resource) ([]*Resource, string) {
	byName := func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		slices.SortStableFunc(list, byName)
	}
	list = slices.CompactFunc(list, func(a, b *Resource) bool { return a.Name == b.Name })
	return list, VersionOf(list)
}

// VersionOf returns the hash over the names and versions of a list that is ordered as [Order] does
// it.
func VersionOf(list []*Resource) string {
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
	return hex.EncodeToString(h.Sum(nil)[:16])
}
