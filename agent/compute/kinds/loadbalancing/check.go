package loadbalancing

import (
	"fmt"
	"math"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kuma's limits, which are within Envoy's (config/cluster/v3/cluster.proto).
const (
	maxRingSize     = 8_000_000
	defaultMinRing  = 1024 // Envoy's default
	maxTableSize    = 5_000_011
	minChoiceCount  = 2
	maxFailover     = 127 // each uses a priority, and Envoy supports 0 to 128
	maxAffinityTags = 9   // the sum of more default weights exceeds 32 bits
)

// Validate validates the conf without its targetRefs. checkPolicy validates the combination.
func (c *Conf) Validate(v *resource.Validator) {
	c.LocalityAwareness.validate(v.Field("localityAwareness"))
	c.LoadBalancer.validate(v.Field("loadBalancer"))
	validateHashPolicies(v.Field("hashPolicies"), c.HashPolicies)
	if l := c.LoadBalancer; l != nil && c.HashPolicies != nil {
		for _, f := range []struct {
			name string
			set  bool
		}{{"ringHash", l.RingHash != nil && l.RingHash.HashPolicies != nil},
			{"maglev", l.Maglev != nil && l.Maglev.HashPolicies != nil}} {
			if f.set {
				v.Field("loadBalancer").Field(f.name).Field("hashPolicies").
					Faultf("the field cannot be combined with hashPolicies beside loadBalancer: remove this one, which is deprecated")
			}
		}
	}
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
	weighted, sum, seen := 0, uint64(1), map[string]bool{} // endpoints without affinity have weight 1
	for i, t := range tags {
		switch at := v.Index(i).Field("key"); {
		case t.Key == "":
			at.Faultf("the key is missing: give the tag to compare between proxy and endpoint")
		case seen[t.Key]:
			at.Faultf("the tag %q is given twice: remove one", t.Key)
		}
		seen[t.Key] = true
		if t.Weight == nil {
			continue
		}
		weighted++
		sum += uint64(*t.Weight)
		if *t.Weight == 0 {
			v.Index(i).Field("weight").Faultf("0 is not a weight: give at least 1")
		}
	}
	switch {
	case weighted > 0 && weighted < len(tags):
		v.Faultf("%d of %d tags have a weight: give all tags a weight, or none", weighted, len(tags))
	case weighted == 0 && len(tags) > maxAffinityTags:
		v.Faultf("%d tags have no weight, and at most %d are allowed: remove tags, or give each a weight",
			len(tags), maxAffinityTags)
	case sum > math.MaxUint32:
		v.Faultf("the sum of the weights is %d, and at most %d is allowed", sum-1, uint32(math.MaxUint32)-1)
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
			at.Faultf("the value is missing: give a number above 0 and up to 100")
		} else if p := t.Percentage.Float(); !(p > 0 && p <= 100) {
			at.Faultf("%s is not a threshold: give a number above 0 and up to 100", t.Percentage)
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
			to.Field("zones").Faultf("type %s does not allow zones: remove them, or use type %s or %s",
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
			at.Field("choiceCount").Faultf("%d is too small: give at least %d", *c.ChoiceCount, minChoiceCount)
		}
		if b := c.ActiveRequestBias; b != nil && !(b.Float() >= 0 && b.Float() <= math.MaxFloat64) {
			at.Field("activeRequestBias").Faultf("%s is out of range: must be at least 0", b)
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
				Faultf("%d is not prime: give a prime number, such as 65537", *c.TableSize)
		}
		validateHashPolicies(at.Field("hashPolicies"), c.HashPolicies)
	}
}

func validateSize(v *resource.Validator, n *uint32, limit uint32) bool {
	if n == nil || *n >= 1 && *n <= limit {
		return true
	}
	v.Faultf("%d is out of range: give 1 to %d", *n, limit)
	return false
}

// prime reports whether n is a prime number. Its run time is proportional to the square root of n.
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

// validateHashPolicies checks that each policy has the field that its type requires.
func validateHashPolicies(v *resource.Validator, list *[]HashPolicy) {
	for i, p := range toolkit.Or(list, nil) {
		p.validate(v.Index(i))
	}
}

func (p *HashPolicy) validate(v *resource.Validator) {
	missing := func(field string) {
		v.Field(field).Faultf("%s is required for a policy of type %s", field, p.Type)
	}
	switch p.Type {
	case hashHeader:
		if p.Header == nil {
			missing("header")
		} else { // pseudo headers are valid too, and Envoy compares in lower case
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

// validate validates the values of a Set-Cookie header (RFC 6265, section 4.1.1).
func (c *Cookie) validate(v *resource.Validator) {
	if !token(c.Name) {
		v.Field("name").Faultf("%q is not a valid cookie name: letters, digits, and !#$%%&'*+-.^_`|~ are allowed", c.Name)
	}
	if c.Path == nil {
		return
	}
	switch at := v.Field("path"); {
	case !strings.HasPrefix(*c.Path, "/"):
		at.Faultf("%q is not absolute: it must begin with /", *c.Path)
	case strings.ContainsFunc(*c.Path, func(r rune) bool { return r < ' ' || r == 0x7f || r == ';' }):
		at.Faultf("%q contains a semicolon or a control character", *c.Path)
	}
}

// token reports whether s is a token (RFC 9110, section 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// checkPolicy validates the confs in combination with their targetRefs.
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
				"%s cannot be combined with loadBalancer in a policy on a MeshGateway: use kind Mesh, or remove loadBalancer",
				ref.Kind)
		case top != "Mesh" && ref.Kind == "MeshExternalService":
			at.Field("targetRef").Field("kind").Faultf("MeshExternalService requires a policy on the whole Mesh, " +
				"because all proxies share the egress: use a targetRef of kind Mesh")
		case ref.Kind == "MeshHTTPRoute":
			if top == "MeshGateway" {
				at.Field("targetRef").Field("kind").OneOf(ref.Kind, "Mesh", "MeshService")
			}
			c.checkRoute(at.Field("default"))
		}
		if l := c.LocalityAwareness; l != nil && l.CrossZone != nil && ref.Kind == "MeshService" &&
			(ref.SectionName != "" || len(ref.Labels) > 0) {
			at.Field("default").Field("localityAwareness").Field("crossZone").
				Faultf("a MeshService has no endpoints in other zones: remove crossZone, or use kind MeshMultiZoneService")
		}
	}
}

// checkRoute rejects fields that apply to clusters, which the requests of many routes share.
func (c *Conf) checkRoute(v *resource.Validator) {
	const reason = "the requests of many routes share a cluster, so this field is not allowed with kind MeshHTTPRoute: " +
		"remove it, or set it for a service"
	if c.LoadBalancer != nil {
		v.Field("loadBalancer").Faultf(reason)
	}
	if c.LocalityAwareness != nil {
		v.Field("localityAwareness").Faultf(reason)
	}
	if c.HashPolicies == nil {
		v.Field("hashPolicies").Faultf("the value is missing: with kind MeshHTTPRoute, give hashPolicies")
	}
}

// sizeFault returns a message if the ring's limits are invalid: Envoy rejects a cluster whose
// minimum, by default 1024, is above the maximum. This can result from merging valid policies.
func (c *RingHash) sizeFault() string {
	minimum, note := uint32(defaultMinRing), ""
	if c.MinRingSize != nil {
		minimum = *c.MinRingSize
	} else {
		note = ", which is the default"
	}
	if c.MaxRingSize == nil || *c.MaxRingSize >= minimum {
		return ""
	}
	return fmt.Sprintf("%d is less than minRingSize (%d%s): increase it, or decrease minRingSize",
		*c.MaxRingSize, minimum, note)
}
