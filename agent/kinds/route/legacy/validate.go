package legacy

import (
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/route"
	"github.com/nearside-mesh/nearside/agent/resource"
)

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
		checkHeader(at.Field("name"), a.Name)
		if a.Value == "" {
			at.Field("value").Faultf("the value is missing")
		}
		route.CheckHeaderValue(at.Field("value"), a.Value)
	}
	for i, r := range h.Remove {
		checkHeader(v.Field("remove").Index(i).Field("name"), r.Name)
	}
}

// checkHeader checks the name of a header that is changed, which may have capitals here.
func checkHeader(v *resource.Validator, name string) {
	route.CheckMutable(v, strings.ToLower(name))
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
		at.Field("maxRingSize").Faultf("%d is less than the smallest size, %d: give minRingSize too, or more", r.MaxRingSize, smallest)
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
