package trafficpermission

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// suggest returns permissions that admit the client of a denial at a service that it does not
// reach, or at an inbound. They select only the service, the dataplane, or the inbound.
func suggest(legacy []policy.LegacyKind) func(*policy.Denial) []*resource.Resource {
	return func(d *policy.Denial) []*resource.Resource {
		switch d.Reason {
		case policy.NotAdmittedOutside:
			if wider := widest(legacy, d); wider != nil {
				return wider
			}
			return []*resource.Resource{admit(d, d.Missed.Tag,
				&resource.TargetRef{Kind: mesh.KindMeshService, Name: d.Missed.Tag})}
		case policy.NotReached:
			service := d.Missed.Tag
			if d.Missed.ID.Kind != mesh.KindTag {
				service = d.Missed.Resource.Name
			}
			return []*resource.Resource{admit(d, service, &resource.TargetRef{Kind: mesh.KindMeshService, Name: service})}
		case policy.NotAdmitted:
		default:
			return nil
		}
		if wider := widest(legacy, d); wider != nil {
			return wider
		}
		in := &d.Dataplane().Networking.Inbound[d.Inbound]
		service, section := in.Tags[resource.TagService], cmp.Or(in.Name, strconv.FormatUint(uint64(in.Port), 10))
		return []*resource.Resource{
			admit(d, service, &resource.TargetRef{Kind: mesh.KindMeshService, Name: service}),
			admit(d, service, &resource.TargetRef{Kind: "Dataplane", Name: d.Proxy().Name}),
			admit(d, service, &resource.TargetRef{Kind: "Dataplane", Name: d.Proxy().Name, SectionName: section}),
		}
	}
}

// admit returns a permission for the client.
func admit(d *policy.Denial, service string, top *resource.TargetRef) *resource.Resource {
	return d.NewPolicy(Kind, "allow-"+d.Client[0]+"-to-"+service,
		&resource.Policy{TargetRef: top, From: []resource.PolicyItem{
			{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: d.Client[0]}, Conf: &Conf{Action: "Allow"}},
		}})
}

// widest returns the deciding legacy permission of an inbound with the client as an additional
// source, or nil if none decides.
func widest(legacy []policy.LegacyKind, d *policy.Denial) []*resource.Resource {
	for _, l := range legacy {
		if p := d.Rules.LegacyInbound(l.Kind, d.Inbound); len(p) > 0 && d.Rules.Kind(Kind).Inbound(d.Inbound) == nil {
			return widen(p[0], d.Client[0])
		}
	}
	return nil
}

// widen returns a legacy permission with an additional source. A new permission could override the
// existing one, because only the strongest applies to an inbound.
func widen(p *resource.Resource, client string) []*resource.Resource {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	wider := *spec
	wider.Sources = append(slices.Clip(spec.Sources),
		resource.LegacySelector{Match: map[string]string{resource.TagService: client}})
	return []*resource.Resource{{Key: p.Key, Spec: &wider}}
}
