package loadbalancing

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// validateHashPolicies checks that each policy has the part that its type needs.
func validateHashPolicies(v *resource.Validator, list *[]HashPolicy) {
	if list == nil {
		return
	}
	for i := range *list {
		(*list)[i].validate(v.Index(i))
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
			at.Field("targetRef").Field("kind").Faultf("%s does not go with loadBalancer in a policy on a MeshGateway: give kind Mesh, or remove loadBalancer", ref.Kind)
		case top != "Mesh" && ref.Kind == "MeshExternalService":
			at.Field("targetRef").Field("kind").Faultf("MeshExternalService goes with a policy on the whole Mesh alone, since its proxies share the way out: give the policy a targetRef of kind Mesh")
		}
		if l := c.LocalityAwareness; l != nil && l.CrossZone != nil && ref.Kind == "MeshService" && (ref.SectionName != "" || len(ref.Labels) > 0) {
			at.Field("default").Field("localityAwareness").Field("crossZone").Faultf("a MeshService has no endpoints in other zones: remove crossZone, or give kind MeshMultiZoneService")
		}
	}
}

// sizeFault says what is wrong with the bounds of the ring: Envoy refuses a cluster whose lower bound is above the
// upper one, and has 1024 as lower bound where there is none. Merging can bring together what no policy has by itself.
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
	return fmt.Sprintf("%d entries is less than minRingSize (%d%s): make it at least that, or lower minRingSize", *c.MaxRingSize, least, given)
}
