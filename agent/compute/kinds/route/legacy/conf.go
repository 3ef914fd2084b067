// Package legacy implements TrafficRoute, the source-destination kind that MeshHTTPRoute and
// MeshTCPRoute replace, and its migration.
package legacy

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/route"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	kind       = "TrafficRoute"
	kindSubset = "MeshServiceSubset"
)

// Kind declares the kind.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-routes", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		SupersededBy: supersededBy,
		Migrate:      migrate, Destinations: destinations,
		Outbound: outbound,
		Apply:    apply,
	}
}

// supersededBy returns the policy that overrides TrafficRoute for a destination, consistent with
// outbound.
func supersededBy(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
	by := r.Kind(route.KindTCP)
	if tcp := by.Outbound(s); tcp != nil {
		return toolkit.Strongest(tcp)
	}
	if mesh.Protocol(s.Protocol).HTTP() {
		by = r.Kind(route.KindHTTP)
	}
	if by == nil || len(by.Policies) == 0 {
		return nil
	}
	return by.Policies[len(by.Policies)-1]
}

// Conf is the conf of a TrafficRoute.
type Conf struct {
	Split        []Split           `json:"split,omitempty"`
	LoadBalancer *LoadBalancer     `json:"loadBalancer,omitempty"`
	Destination  map[string]string `json:"destination,omitempty"` // instead of split
	// HTTP is for HTTP services. The first match applies.
	HTTP []HTTP `json:"http,omitempty"`
}

// Split is a share of the traffic with the tags of its endpoints. "*" means the value of the
// outbound.
type Split struct {
	Weight      *uint32           `json:"weight,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// HTTP is the action for requests that its match selects.
type HTTP struct {
	Match       *Match            `json:"match,omitempty"`
	Modify      *Modify           `json:"modify,omitempty"`
	Split       []Split           `json:"split,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// Match selects requests that satisfy all its conditions.
type Match struct {
	Method  *String           `json:"method,omitempty"`
	Path    *String           `json:"path,omitempty"`
	Headers map[string]String `json:"headers,omitempty"`
}

// String is a condition on a string. Exactly one of its fields must be set.
type String struct {
	Prefix *string `json:"prefix,omitempty"`
	Exact  *string `json:"exact,omitempty"`
	Regex  *string `json:"regex,omitempty"`
}

// Modify modifies requests and responses.
type Modify struct {
	Path            *Path    `json:"path,omitempty"`
	Host            *Host    `json:"host,omitempty"`
	RequestHeaders  *Headers `json:"requestHeaders,omitempty"`
	ResponseHeaders *Headers `json:"responseHeaders,omitempty"`
}

// Path replaces the matched prefix of the path, or the matches of a pattern.
type Path struct {
	RewritePrefix *string `json:"rewritePrefix,omitempty"`
	Regex         *Regex  `json:"regex,omitempty"`
}

// Host sets the host to a value, or to a value extracted from the path.
type Host struct {
	Value    *string `json:"value,omitempty"`
	FromPath *Regex  `json:"fromPath,omitempty"`
}

// Regex replaces the matches of an RE2 pattern.
type Regex struct {
	Pattern      string `json:"pattern"`
	Substitution string `json:"substitution"`
}

// Headers changes headers.
type Headers struct {
	Add    []Add    `json:"add,omitempty"`
	Remove []Remove `json:"remove,omitempty"`
}

// Add sets a header or, if Append is set, adds to it.
type Add struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Append bool   `json:"append,omitempty"`
}

// Remove names a header.
type Remove struct {
	Name string `json:"name"`
}

// LoadBalancer is the load balancing algorithm. At most one of its fields may be set. Default round
// robin.
type LoadBalancer struct {
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *struct{}     `json:"maglev,omitempty"`
}

// LeastRequest selects the endpoint with the fewest requests among some random ones.
type LeastRequest struct {
	ChoiceCount uint32 `json:"choiceCount,omitempty"` // number of random endpoints. Default 2
}

// RingHash sends requests with equal hashes to the same endpoint.
type RingHash struct {
	HashFunction string `json:"hashFunction,omitempty"` // XX_HASH or MURMUR_HASH_2
	MinRingSize  uint64 `json:"minRingSize,omitempty"`  // Default 1024
	MaxRingSize  uint64 `json:"maxRingSize,omitempty"`  // Default 8388608
}

// Envoy's limits for the hash ring.
const (
	maxRing     = 8 << 20
	defaultRing = 1024 // default minimum
)

// Validate validates destinations, matches, and modifications.
func (c *Conf) Validate(v *resource.Validator) {
	checkSplit(v, c.Split, c.Destination)
	for i := range c.HTTP {
		c.HTTP[i].validate(v.Field("http").Index(i))
	}
	c.LoadBalancer.validate(v.Field("loadBalancer"))
}

// checkSplit checks that exactly one of split and destination is set.
func checkSplit(v *resource.Validator, split []Split, destination map[string]string) {
	switch {
	case len(split) == 0 && len(destination) == 0:
		v.Faultf("no destination is given: give destination or split")
	case len(split) > 0 && len(destination) > 0:
		v.Field("split").Faultf("destination is also given: remove one of them")
	}
	checkDestination(v.Field("destination"), destination)
	var total uint64
	for i := range split {
		at := v.Field("split").Index(i)
		if split[i].Weight == nil {
			at.Field("weight").Faultf("the weight is missing: give the weight of this destination, or 0 to disable it")
		} else {
			total += uint64(*split[i].Weight)
		}
		if len(split[i].Destination) == 0 {
			at.Field("destination").Faultf("the tags of the destination are missing")
		}
		checkDestination(at.Field("destination"), split[i].Destination)
	}
	route.CheckTotal(v.Field("split"), len(split), total)
}

func checkDestination(v *resource.Validator, tags map[string]string) {
	if len(tags) == 0 {
		return
	}
	v.Tags(tags, true)
	if _, ok := tags[resource.TagService]; !ok {
		v.Key(resource.TagService).Faultf("the tag is missing: give the service, or * for the service of the outbound")
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	h.Match.validate(v.Field("match"))
	checkSplit(v, h.Split, h.Destination)
	m := h.Modify
	if m == nil {
		return
	}
	at := v.Field("modify")
	m.Path.validate(at.Field("path"), h.Match)
	m.Host.validate(at.Field("host"))
	m.RequestHeaders.validate(at.Field("requestHeaders"))
	m.ResponseHeaders.validate(at.Field("responseHeaders"))
}

func (m *Match) validate(v *resource.Validator) {
	if m == nil || m.Method == nil && m.Path == nil && len(m.Headers) == 0 {
		v.Faultf("no condition is given: give method, path, or headers")
		return
	}
	m.Method.validate(v.Field("method"))
	m.Path.validate(v.Field("path"))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		at, s := v.Field("headers").Key(name), m.Headers[name]
		at.HeaderName(strings.TrimPrefix(strings.ToLower(name), ":"))
		s.validate(at)
	}
}

func (s *String) validate(v *resource.Validator) {
	if s == nil {
		return
	}
	switch n := count(s.Prefix != nil, s.Exact != nil, s.Regex != nil); {
	case n != 1:
		v.Faultf("%d conditions are given: give exactly one of prefix, exact, regex", n)
	case s.Prefix != nil && *s.Prefix == "":
		v.Field("prefix").Faultf("the prefix is empty")
	case s.Regex != nil:
		v.Field("regex").Pattern(*s.Regex)
	}
}

func (p *Path) validate(v *resource.Validator, m *Match) {
	if p == nil {
		return
	}
	if n := count(p.RewritePrefix != nil, p.Regex != nil); n != 1 {
		v.Faultf("%d rewrites are given: give exactly one of rewritePrefix, regex", n)
	}
	if p.RewritePrefix != nil {
		at := v.Field("rewritePrefix")
		if m == nil || m.Path == nil || m.Path.Prefix == nil {
			at.Faultf("no prefix to rewrite: give match.path.prefix")
		}
		route.CheckPath(at, p.RewritePrefix)
	}
	p.Regex.validate(v.Field("regex"))
}

func (h *Host) validate(v *resource.Validator) {
	if h == nil {
		return
	}
	if n := count(h.Value != nil, h.FromPath != nil); n != 1 {
		v.Faultf("%d rewrites are given: give exactly one of value, fromPath", n)
	}
	if h.Value != nil {
		if *h.Value == "" {
			v.Field("value").Faultf("the host is missing")
		}
		v.Field("value").HeaderValue(*h.Value)
	}
	h.FromPath.validate(v.Field("fromPath"))
}

func (r *Regex) validate(v *resource.Validator) {
	if r == nil {
		return
	}
	v.Field("pattern").Pattern(r.Pattern)
	if r.Substitution == "" {
		v.Field("substitution").Faultf("the substitution is missing")
	}
	route.CheckSubstitution(v.Field("substitution"), r.Pattern, r.Substitution)
}

func (h *Headers) validate(v *resource.Validator) {
	if h == nil {
		return
	}
	for i, a := range h.Add {
		at := v.Field("add").Index(i)
		route.CheckMutable(at.Field("name"), strings.ToLower(a.Name)) // upper case is allowed here
		if a.Value == "" {
			at.Field("value").Faultf("the value is missing")
		}
		route.CheckHeaderValue(at.Field("value"), a.Value)
	}
	for i, r := range h.Remove {
		route.CheckMutable(v.Field("remove").Index(i).Field("name"), strings.ToLower(r.Name))
	}
}

func (l *LoadBalancer) validate(v *resource.Validator) {
	if l == nil {
		return
	}
	if n := count(l.RoundRobin != nil, l.LeastRequest != nil, l.RingHash != nil, l.Random != nil, l.Maglev != nil); n > 1 {
		v.Faultf("%d algorithms are given: give one of roundRobin, leastRequest, ringHash, random, maglev", n)
	}
	if l.LeastRequest != nil && l.LeastRequest.ChoiceCount == 1 {
		v.Field("leastRequest").Field("choiceCount").Faultf("1 is too small: give at least 2")
	}
	r := l.RingHash
	if r == nil {
		return
	}
	at := v.Field("ringHash")
	at.Field("hashFunction").OneOf(r.HashFunction, "XX_HASH", "MURMUR_HASH_2")
	checkRing(at.Field("minRingSize"), r.MinRingSize)
	checkRing(at.Field("maxRingSize"), r.MaxRingSize)
	minimum := r.MinRingSize
	if minimum == 0 {
		minimum = defaultRing
	}
	if r.MaxRingSize > 0 && r.MaxRingSize < minimum {
		at.Field("maxRingSize").Faultf("%d is less than the minimum size, %d: increase it, or give minRingSize",
			r.MaxRingSize, minimum)
	}
}

func checkRing(v *resource.Validator, n uint64) {
	if n > maxRing {
		v.Faultf("%d is too large: the maximum is %d", n, maxRing)
	}
}

// count returns the number of true values.
func count(set ...bool) int {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
