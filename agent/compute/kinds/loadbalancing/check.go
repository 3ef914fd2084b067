package loadbalancing

import (
	"fmt"
	"math"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Bounds of the reference, which lie within those of Envoy (config/cluster/v3/cluster.proto).
const (
	maxRingSize     = 8_000_000
	defaultMinRing  = 1024 // Envoy's own, in force where a conf has none
	maxTableSize    = 5_000_011
	minChoiceCount  = 2
	maxFailover     = 127 // each takes a priority, and Envoy has 0 to 128
	maxAffinityTags = 9   // nine default weights are the most whose sum fits in 32 bits
)

// Validate checks the conf by itself; what depends on the targets is checked by checkPolicy.
func (c *Conf) Validate(v *resource.Validator) {
	c.LocalityAwareness.validate(v.Field("localityAwareness"))
	c.LoadBalancer.validate(v.Field("loadBalancer"))
}

func (l *LocalityAwareness) validate(v *resource.Validator) {
	if l == nil {
		return
	}
	if l.LocalZone != nil && l.LocalZone.AffinityTags != nil {
		validateAffinity(v.Field("localZone").Field("affinityTags"), *l.LocalZone.AffinityTags)
	}
	l.CrossZone.validate(v.Field("crossZone"))
}

func validateAffinity(v *resource.Validator, tags []AffinityTag) {
	weighted, sum, seen := 0, uint64(1), map[string]bool{} // endpoints without affinity weigh 1
	for i, t := range tags {
		switch at := v.Index(i).Field("key"); {
		case t.Key == "":
			at.Faultf("the key is missing: name the tag that proxy and endpoint have in common")
		case seen[t.Key]:
			at.Faultf("the tag %q is given before: it can have one place in the order", t.Key)
		}
		seen[t.Key] = true
		if t.Weight == nil {
			continue
		}
		weighted++
		sum += uint64(*t.Weight)
		if *t.Weight == 0 {
			v.Index(i).Field("weight").Faultf("0 is not a weight: give 1 or more")
		}
	}
	switch {
	case weighted > 0 && weighted < len(tags):
		v.Faultf("%d of %d tags have a weight: give all of them one, or none", weighted, len(tags))
	case weighted == 0 && len(tags) > maxAffinityTags:
		v.Faultf("%d tags without weights: at most %d are allowed, or give each a weight", len(tags), maxAffinityTags)
	case sum > math.MaxUint32:
		v.Faultf("the weights add up to %d: at most %d is allowed", sum-1, uint32(math.MaxUint32)-1)
	}
}

func (c *CrossZone) validate(v *resource.Validator) {
	if c == nil {
		return
	}
	if c.Failover != nil {
		list := v.Field("failover")
		toolkit.AtMost(list, len(*c.Failover), maxFailover, "rules")
		for i := range *c.Failover {
			(*c.Failover)[i].validate(list.Index(i))
		}
	}
	if t := c.FailoverThreshold; t != nil {
		at := v.Field("failoverThreshold").Field("percentage")
		if t.Percentage == nil {
			at.Faultf("the value is missing: give a number above 0, at most 100")
		} else if p := t.Percentage.Float(); !(p > 0 && p <= 100) {
			at.Faultf("%s is no threshold: give a number above 0, at most 100", t.Percentage)
		}
	}
}

func (f *Failover) validate(v *resource.Validator) {
	if f.From != nil {
		validateZones(v.Field("from").Field("zones"), f.From.Zones)
	}
	to := v.Field("to")
	if !to.Field("type").OneOf(f.To.Type, zonesNone, zonesOnly, zonesAny, zonesAnyExcept) {
		return
	}
	switch zones := toolkit.Or(f.To.Zones, nil); f.To.Type {
	case zonesNone, zonesAny:
		if len(zones) > 0 {
			to.Field("zones").Faultf("%s names no zones: remove them, or give the type %s or %s",
				f.To.Type, zonesOnly, zonesAnyExcept)
		}
	default:
		validateZones(to.Field("zones"), zones)
	}
}

func validateZones(v *resource.Validator, zones []string) {
	if len(zones) == 0 {
		v.Faultf("the list is empty: name at least one zone")
	}
	for i, z := range zones {
		if z == "" {
			v.Index(i).Faultf("the name of the zone is empty")
		}
	}
}

func (l *LoadBalancer) validate(v *resource.Validator) {
	if l == nil || !v.Field("type").OneOf(l.Type, roundRobin, leastRequest, ringHash, random, maglev) {
		return
	}
	if c := l.LeastRequest; c != nil {
		at := v.Field("leastRequest")
		if c.ChoiceCount != nil && *c.ChoiceCount < minChoiceCount {
			at.Field("choiceCount").Faultf("%d endpoints are no choice: give %d or more", *c.ChoiceCount, minChoiceCount)
		}
		if b := c.ActiveRequestBias; b != nil && !(b.Float() >= 0 && b.Float() <= math.MaxFloat64) {
			at.Field("activeRequestBias").Faultf("%s is not a bias: give a number of 0 or more", b)
		}
	}
	if c := l.RingHash; c != nil {
		at := v.Field("ringHash")
		if validateSize(at.Field("minRingSize"), c.MinRingSize, maxRingSize) &&
			validateSize(at.Field("maxRingSize"), c.MaxRingSize, maxRingSize) {
			if reason := c.sizeFault(); reason != "" {
				at.Field("maxRingSize").Faultf("%s", reason)
			}
		}
		validateHashPolicies(at.Field("hashPolicies"), c.HashPolicies)
	}
	if c := l.Maglev; c != nil {
		at := v.Field("maglev")
		if validateSize(at.Field("tableSize"), c.TableSize, maxTableSize) && c.TableSize != nil && !prime(*c.TableSize) {
			at.Field("tableSize").
				Faultf("%d is not prime, and the table needs a prime number of entries: give one, such as 65537", *c.TableSize)
		}
		validateHashPolicies(at.Field("hashPolicies"), c.HashPolicies)
	}
}

func validateSize(v *resource.Validator, n *uint32, most uint32) bool {
	if n == nil || *n >= 1 && *n <= most {
		return true
	}
	v.Faultf("%d entries: 1 to %d is allowed", *n, most)
	return false
}

// prime reports whether a number has no divisor but one and itself. It takes time of the order of
// its root.
func prime(n uint32) bool {
	if n < 2 || n > 2 && n%2 == 0 {
		return false
	}
	for d := uint64(3); d*d <= uint64(n); d += 2 {
		if uint64(n)%d == 0 {
			return false
		}
	}
	return true
}

// validateHashPolicies checks that each policy has the part that its type needs.
func validateHashPolicies(v *resource.Validator, list *[]HashPolicy) {
	for i, p := range toolkit.Or(list, nil) {
		p.validate(v.Index(i))
	}
}

func (p *HashPolicy) validate(v *resource.Validator) {
	missing := func(field string) {
		v.Field(field).Faultf("%s is missing: a policy of type %s needs it", field, p.Type)
	}
	switch p.Type {
	case hashHeader:
		if p.Header == nil {
			missing("header")
		} else { // pseudo headers have a name too, and Envoy compares in lower case
			v.Field("header").Field("name").HeaderName(strings.ToLower(strings.TrimPrefix(p.Header.Name, ":")))
		}
	case hashCookie:
		if p.Cookie == nil {
			missing("cookie")
		} else {
			p.Cookie.validate(v.Field("cookie"))
		}
	case hashConnection, hashSourceIP:
		if p.Connection == nil {
			missing("connection")
		}
	case hashQuery:
		if p.QueryParameter == nil {
			missing("queryParameter")
		} else if p.QueryParameter.Name == "" {
			v.Field("queryParameter").Field("name").Faultf("the name of the parameter is missing")
		}
	case hashFilterState:
		if p.FilterState == nil {
			missing("filterState")
		} else if p.FilterState.Key == "" {
			v.Field("filterState").Field("key").Faultf("the key of the object is missing")
		}
	default:
		v.Field("type").OneOf(p.Type, hashHeader, hashCookie, hashConnection, hashQuery, hashFilterState)
	}
}

// validate checks what ends up in a Set-Cookie header (RFC 6265, section 4.1.1).
func (c *Cookie) validate(v *resource.Validator) {
	if !token(c.Name) {
		v.Field("name").Faultf("%q is not the name of a cookie: letters, digits and !#$%%&'*+-.^_`|~ are allowed", c.Name)
	}
	if c.Path == nil {
		return
	}
	switch at := v.Field("path"); {
	case !strings.HasPrefix(*c.Path, "/"):
		at.Faultf("%q is not absolute: let it begin with /", *c.Path)
	case strings.ContainsFunc(*c.Path, func(r rune) bool { return r < ' ' || r == 0x7f || r == ';' }):
		at.Faultf("%q has a semicolon or a character that does not print, which would end the attribute", *c.Path)
	}
}

// token is as RFC 9110 has it, section 5.6.2.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// checkPolicy checks what the conf may say with regard to whom the policy is about.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	top := "Mesh"
	if p.TargetRef != nil {
		top = p.TargetRef.Kind
	}
	for i := range p.To {
		c, ok := p.To[i].Conf.(*Conf)
		if !ok {
			continue
		}
		at, ref := v.Field("to").Index(i), &p.To[i].TargetRef
		switch {
		case top == "MeshGateway" && c.LoadBalancer != nil && ref.Kind != "Mesh":
			at.Field("targetRef").Field("kind").Faultf(
				"%s does not go with loadBalancer in a policy on a MeshGateway: give kind Mesh, or remove loadBalancer", ref.Kind)
		case top != "Mesh" && ref.Kind == "MeshExternalService":
			at.Field("targetRef").Field("kind").Faultf("MeshExternalService goes with a policy on the whole Mesh alone, " +
				"since its proxies share the way out: give the policy a targetRef of kind Mesh")
		}
		if l := c.LocalityAwareness; l != nil && l.CrossZone != nil && ref.Kind == "MeshService" &&
			(ref.SectionName != "" || len(ref.Labels) > 0) {
			at.Field("default").Field("localityAwareness").Field("crossZone").
				Faultf("a MeshService has no endpoints in other zones: remove crossZone, or give kind MeshMultiZoneService")
		}
	}
}

// sizeFault says what is wrong with the bounds of the ring: Envoy refuses a cluster whose lower
// bound is above the upper one, and has 1024 as lower bound where there is none. Merging can bring
// together what no policy has by itself.
func (c *RingHash) sizeFault() string {
	least, given := uint32(defaultMinRing), ""
	if c.MinRingSize != nil {
		least = *c.MinRingSize
	} else {
		given = ", which is the default"
	}
	if c.MaxRingSize == nil || *c.MaxRingSize >= least {
		return ""
	}
	return fmt.Sprintf("%d entries is less than minRingSize (%d%s): make it at least that, or lower minRingSize",
		*c.MaxRingSize, least, given)
}
