// Package draft holds the config of a proxy while it is generated, and seals it.
//
// A draft consists of Envoy's messages, not yet packed into Any, with the names of the mesh. The
// generator and plugins edit it in place. It is sealed once: packed, sorted, validated, and hashed.
// The package is pure.
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

// Types lists the type URLs in make-before-break order: a type precedes those that refer to it
// (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, "Eventual consistency
// considerations"). The rank of a type is its index.
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

// Resource is a sealed xDS resource. It is immutable and shared by proxies that have the same
// bytes.
type Resource = envoy.Resource

// ResourceID identifies a resource in the config of a proxy.
type ResourceID struct {
	TypeURL string
	Name    string
}

// Sealed is the sealed config of one proxy. It is immutable.
type Sealed struct {
	// Resources holds the resources by rank of their type (see Types). Each list is sorted by name.
	Resources envoy.Snapshot
	// Versions holds, by rank, a content hash of the names and versions of the list. It is never
	// "".
	Versions [NumTypes]string
	// Pipes are the destinations of the loggers that the agent reads, sorted and unique. They do
	// not affect Resources or Versions.
	Pipes []Pipe
}

// With returns the config with other resources of a rank, as returned by [Order].
func (s *Sealed) With(rank int, list []*Resource, version string) *Sealed {
	out := *s
	out.Resources[rank], out.Versions[rank] = list, version
	return &out
}

// Sharing returns the config with the lists of other that are equal, or other itself if everything
// is equal.
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
// the order of the names. A resource is nil if its list does not have the name.
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

// Fault is a resource that violates the rules of Envoy's API or that could not be sealed. Other
// resources are not affected.
type Fault struct {
	Type string // type URL
	Name string
	Err  error
	// Left is set if the resource has no wire form and is not in the config. Otherwise it is in the
	// config and must be withheld: if it were omitted, the client would remove its present version.
	Left bool
}

// Error returns the resource, the fault, and the consequence.
func (f Fault) Error() string {
	follows := "Envoy would refuse it"
	if f.Left {
		follows = "it is left out"
	}
	return fmt.Sprintf("%s %q: %v: %s", shortType(f.Type), f.Name, f.Err, follows)
}

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Sealer packs, validates, sorts, and hashes drafts. Large configs are generated and sealed in
// parts that fit into processor caches and reuse the same memory.
//
// Resources that violate the validation rules of Envoy's API are returned as faults. If several
// resources have the same name, the first is used.
type Sealer struct {
	// Inline encodes routes in their listeners, the form that plugins and patches edit. It is never
	// sent to an Envoy.
	Inline bool
	// Previous is the previous config of the proxy, whose equal resources are reused; nil for none.
	Previous *Sealed

	pool    *Pool
	out     *Sealed
	faults  []Fault
	scratch []byte
	filters []byte
	names   []string
	headed  []headedRoute // route configurations that add headers
	headers *Headers

	unpacked []byte
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

// Grow reserves memory for n more resources of a type.
func (s *Sealer) Grow(typeURL string, n int) {
	rank := Rank(typeURL)
	s.out.Resources[rank] = slices.Grow(s.out.Resources[rank], n)
}

// Add seals a draft. The memory of the draft can be reused afterwards.
func (s *Sealer) Add(d *Draft) {
	s.out.Pipes = append(s.out.Pipes, d.Pipes...)
	for rank, list := range d.Ready {
		s.out.Resources[rank] = append(s.out.Resources[rank], list...)
	}
	for _, c := range d.Clusters {
		s.add(RankCluster, c.Message.GetName(), func(b []byte, how validation) ([]byte, error) {
			return appendCluster(b, c, how)
		})
	}
	for _, l := range d.Listeners {
		s.addListener(l)
	}
	for _, e := range d.Endpoints {
		s.add(RankEndpoint, e.GetClusterName(), func(b []byte, how validation) ([]byte, error) {
			return appendMessage(b, e, how)
		})
	}
	for _, r := range d.Routes {
		s.add(RankRoute, r.GetName(), func(b []byte, how validation) ([]byte, error) { return appendMessage(b, r, how) })
	}
}

// addListener seals a listener. The routes of its chains are separate resources, so that Envoy can
// update them without draining the connections of the listener.
func (s *Sealer) addListener(l *Listener) {
	var rds []string
	if !s.Inline {
		s.names = l.routeNames(s.names[:0])
		rds = s.names
	}
	s.add(RankListener, l.Message.GetName(), func(b []byte, how validation) ([]byte, error) {
		return appendListener(b, l, rds, &s.filters, how)
	})
	for i, name := range rds {
		if name == inline {
			continue
		}
		h, at := l.Chains[i].HTTP, len(s.out.Resources[RankRoute])
		s.add(RankRoute, name, func(b []byte, how validation) ([]byte, error) { return h.appendRoutes(b, name, how) })
		if h.Headers != nil && len(s.out.Resources[RankRoute]) > at {
			s.headed, s.headers = append(s.headed, headedRoute{at, len(s.scratch) - len(h.Headers.field)}), h.Headers
		}
	}
}

// add seals one resource, whose wire form encode appends. An invalid resource is encoded without
// validation and reported as a fault.
func (s *Sealer) add(rank int, name string, encode func(b []byte, how validation) ([]byte, error)) {
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
	s.out.Resources[rank] = append(s.out.Resources[rank], s.pool.Seal(rank, name, body, s.Previous))
}

// Finish returns the config and its faults. The sealer must not be used afterwards.
func (s *Sealer) Finish() (*Sealed, []Fault) {
	for rank, list := range s.out.Resources {
		s.out.Resources[rank], s.out.Versions[rank] = Order(append([]*Resource(nil), list...))
		clear(list)
		s.pool.scratch[rank] = list[:0]
	}
	s.out.Pipes = orderPipes(s.out.Pipes)
	return s.out, s.faults
}

// versionBytes is the number of bytes of the hash of a body that form its version.
const versionBytes = 16

// NewResource seals the wire form of a message of a rank. The body must not be changed afterwards.
func NewResource(rank int, name string, body []byte) *Resource {
	return envoy.Raw(envoy.Kind(rank), name, versionOfBody(body), body)
}

func versionOfBody(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:versionBytes])
}

// Order sorts a list of sealed resources by name in place and removes duplicates. It returns the
// list with the hash of its names and versions.
func Order(list []*Resource) ([]*Resource, string) {
	byName := func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		slices.SortStableFunc(list, byName)
	}
	list = slices.CompactFunc(list, func(a, b *Resource) bool { return a.Name == b.Name })
	return list, VersionOf(list)
}

// VersionOf returns the hash of the names and versions of a list that is ordered as by [Order].
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
