package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// behind returns the rules that define virtual hosts, routes, and clusters.
func behind(legacy []policy.LegacyKind) func(*policy.Flow) []policy.FieldRef {
	return func(f *policy.Flow) []policy.FieldRef {
		var out []policy.FieldRef
		switch f.Step.Level {
		case match.LevelVirtualHost:
			out = f.Merged(KindHTTP)
		case match.LevelRoute:
			out = routed(f, f.Step.Choice)
		case match.LevelCluster:
		default:
			return nil
		}
		out = append(out, f.Merged(KindTCP)...)
		for _, l := range legacy {
			out = append(out, f.Merged(l.Kind)...)
		}
		return out
	}
}

// routed returns the rules that define the routes with a name.
func routed(f *policy.Flow, name string) []policy.FieldRef {
	if f.Outbound == nil {
		return nil
	}
	r := f.Rules.Kind(KindHTTP).ServiceRule(f.Outbound.Service)
	if r == nil {
		return nil
	}
	var out []policy.FieldRef
	for _, o := range r.Origins {
		conf, ok := o.Policy.Spec.(*resource.Policy).To[o.Item].Conf.(*HTTPConf)
		if !ok {
			continue
		}
		if i := slices.Index(conf.RouteNames(), name); i >= 0 {
			out = append(out, policy.FieldRef{Resource: o.Policy.Key, Field: fmt.Sprintf("spec.to[%d].rules[%d]", o.Item, i)})
		}
	}
	return out
}

// suggest returns a route for a request that no route matches.
func suggest(d *policy.Denial) []*resource.Resource {
	if d.Reason != policy.NotRouted || d.Outbound == nil {
		return nil
	}
	s := d.Outbound.Service
	ref := BackendRef{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: s.ID.Name}}
	if s.ID.Kind != mesh.KindTag {
		ref = BackendRef{TargetRef: resource.TargetRef{Kind: s.ID.Kind, Name: s.Resource.Name}, Port: &s.Port}
	}
	path, _, _ := strings.Cut(d.Request.Path, "?")
	return []*resource.Resource{d.NewPolicy(KindHTTP, "allow-"+d.Client[0]+"-to-"+s.ID.Name, &resource.Policy{
		Shape:     &resource.PolicyShape{Inline: true},
		TargetRef: &resource.TargetRef{Kind: mesh.KindMeshService, Name: d.Client[0]},
		To: []resource.PolicyItem{{TargetRef: ref.TargetRef, Conf: &HTTPConf{Rules: []HTTPRule{{
			Matches: []Match{{Path: &PathMatch{Type: exact, Value: path}}},
			Default: Action{BackendRefs: &[]BackendRef{ref}},
		}}}}},
	})}
}
