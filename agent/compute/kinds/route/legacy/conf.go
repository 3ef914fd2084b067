// Package legacy is TrafficRoute, the source-destination kind that MeshHTTPRoute and MeshTCPRoute
// replace, with its migration.
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

// supersededBy returns the policy that keeps a TrafficRoute from making the chain of a destination,
// as outbound has it.
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

// Conf is what a TrafficRoute says about the connections to a service.
type Conf struct {
	Split        []Split           `json:"split,omitempty"`
	LoadBalancer *LoadBalancer     `json:"loadBalancer,omitempty"`
	Destination  map[string]string `json:"destination,omitempty"` // instead of split
	// HTTP is for services of HTTP: the first that takes a request decides.
	HTTP []HTTP `json:"http,omitempty"`
}

// Split is a share of the traffic, and the tags of the endpoints that get it. The value "*" stands
// for what the outbound has.
type Split struct {
	Weight      *uint32           `json:"weight,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// HTTP says what happens to the requests that its match takes.
type HTTP struct {
	Match       *Match            `json:"match,omitempty"`
	Modify      *Modify           `json:"modify,omitempty"`
	Split       []Split           `json:"split,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// Match takes the requests for which all that it says is true.
type Match struct {
	Method  *String           `json:"method,omitempty"`
	Path    *String           `json:"path,omitempty"`
	Headers map[string]String `json:"headers,omitempty"`
}

// String is about a text: exactly one of its fields.
type String struct {
	Prefix *string `json:"prefix,omitempty"`
	Exact  *string `json:"exact,omitempty"`
	Regex  *string `json:"regex,omitempty"`
}

// Modify changes requests and responses.
type Modify struct {
	Path            *Path    `json:"path,omitempty"`
	Host            *Host    `json:"host,omitempty"`
	RequestHeaders  *Headers `json:"requestHeaders,omitempty"`
	ResponseHeaders *Headers `json:"responseHeaders,omitempty"`
}

// Path changes the path: the prefix that was matched, or what a pattern matches.
type Path struct {
	RewritePrefix *string `json:"rewritePrefix,omitempty"`
	Regex         *Regex  `json:"regex,omitempty"`
}

// Host changes the host: to a value, or to something out of the path.
type Host struct {
	Value    *string `json:"value,omitempty"`
	FromPath *Regex  `json:"fromPath,omitempty"`
}

// Regex puts a substitution in the place of what a pattern matches, both in the syntax of RE2.
type Regex struct {
	Pattern      string `json:"pattern"`
	Substitution string `json:"substitution"`
}

// Headers changes headers.
type Headers struct {
	Add    []Add    `json:"add,omitempty"`
	Remove []Remove `json:"remove,omitempty"`
}

// Add sets a header, or with Append adds to it.
type Add struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Append bool   `json:"append,omitempty"`
}

// Remove names a header.
type Remove struct {
	Name string `json:"name"`
}

// LoadBalancer says how requests are distributed over endpoints: at most one of its fields. Default
// round robin.
type LoadBalancer struct {
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *struct{}     `json:"maglev,omitempty"`
}

// LeastRequest takes the endpoint with the fewest requests of some that it looks at.
type LeastRequest struct {
	ChoiceCount uint32 `json:"choiceCount,omitempty"` // how many it looks at; default 2
}

// RingHash sends what has one hash to one endpoint.
type RingHash struct {
	HashFunction string `json:"hashFunction,omitempty"` // XX_HASH or MURMUR_HASH_2
	MinRingSize  uint64 `json:"minRingSize,omitempty"`  // default 1024
	MaxRingSize  uint64 `json:"maxRingSize,omitempty"`  // default 8388608
}

// Bounds of the hash ring, as Envoy has them.
const (
	maxRing     = 8 << 20
	defaultRing = 1024 // the smallest, where none is given
)

// Validate checks destinations, matches and what is changed.
func (c *Conf) Validate(v *resource.Validator) {
	checkSplit(v, c.Split, c.Destination)
	for i := range c.HTTP {
		c.HTTP[i].validate(v.Field("http").Index(i))
	}
	c.LoadBalancer.validate(v.Field("loadBalancer"))
}

// checkSplit checks that destinations are given, in one of two ways.
func checkSplit(v *resource.Validator, split []Split, destination map[string]string) {
	switch {
	case len(split) == 0 && len(destination) == 0:
		v.Faultf("there is no destination: give destination or split")
	case len(split) > 0 && len(destination) > 0:
		v.Field("split").Faultf("destination is given already: remove one of them")
	}
	checkDestination(v.Field("destination"), destination)
	var total uint64
	for i := range split {
		at := v.Field("split").Index(i)
		if split[i].Weight == nil {
			at.Field("weight").Faultf("the weight is missing: give the share of this destination, 0 for none")
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
		v.Key(resource.TagService).Faultf("the tag is missing: it names the service, * is that of the outbound")
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
		v.Faultf("nothing is matched: give method, path or headers")
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
		v.Faultf("%d ways to match are given: give exactly one of prefix, exact, regex", n)
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
			at.Faultf("there is no prefix to rewrite: give match.path.prefix")
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
		route.CheckMutable(at.Field("name"), strings.ToLower(a.Name)) // which may have capitals here
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
		v.Faultf("%d ways to balance are given: give one of roundRobin, leastRequest, ringHash, random, maglev", n)
	}
	if l.LeastRequest != nil && l.LeastRequest.ChoiceCount == 1 {
		v.Field("leastRequest").Field("choiceCount").Faultf("1 leaves no choice: give 2 or more")
	}
	r := l.RingHash
	if r == nil {
		return
	}
	at := v.Field("ringHash")
	at.Field("hashFunction").OneOf(r.HashFunction, "XX_HASH", "MURMUR_HASH_2")
	checkRing(at.Field("minRingSize"), r.MinRingSize)
	checkRing(at.Field("maxRingSize"), r.MaxRingSize)
	smallest := r.MinRingSize
	if smallest == 0 {
		smallest = defaultRing
	}
	if r.MaxRingSize > 0 && r.MaxRingSize < smallest {
		at.Field("maxRingSize").Faultf("%d is less than the smallest size, %d: give minRingSize too, or more",
			r.MaxRingSize, smallest)
	}
}

func checkRing(v *resource.Validator, n uint64) {
	if n > maxRing {
		v.Faultf("%d is too large: at most %d is allowed", n, maxRing)
	}
}

// count counts what is true.
func count(set ...bool) int {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
