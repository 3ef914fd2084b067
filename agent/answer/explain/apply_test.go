package explain_test

import (
	"encoding/json"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// apply writes the rules of Tune and the legacy kinds into the names of listeners' statistics.
func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind("Tune")
	for _, l := range d.Listeners {
		var b strings.Builder
		add := func(about any, r *policy.Rule) {
			if r != nil {
				fmt.Fprintf(&b, "%v=%s;", about, marshaled(r.Conf))
			}
		}
		old := func(r *resource.Resource) {
			if r != nil {
				fmt.Fprintf(&b, "%s=%s;", r.Kind, marshaled(r.Spec))
			}
		}
		switch l.Kind {
		case draft.Outbound:
			add("to", k.Outbound(l.Service))
			lanes := c.Rules.Kind("MeshHTTPRoute")
			add("lane", lanes.Outbound(l.Service))
			if lanes != nil {
				for _, p := range lanes.Policies {
					add("route", k.Route(l.Service, "", []resource.Key{p.Key}))
				}
			}
			if k != nil {
				for _, r := range k.To {
					if len(r.Subset) > 1 {
						add(r.Subset, r)
					}
				}
			}
			if k == nil {
				old(c.Rules.LegacyOutbound("OldTune", l.Service.Name))
			}
			if lane, r := lanes.Outbound(l.Service), c.Rules.LegacyOutbound("OldLane", l.Service.Name); lane == nil && r != nil {
				conf := *r.Spec.(*resource.LegacyPolicy).Conf.(*tuneConf)
				if c.Rules.Kind("Dead") != nil {
					conf.A = nil
				}
				fmt.Fprintf(&b, "OldLane=%s;", marshaled(conf))
			}
			if l.Service.External {
				for _, kind := range []string{"OldLimit"} {
					if r := c.Rules.LegacyOutbound(kind, l.Service.Name); r != nil {
						fmt.Fprintf(&b, "%s/%s;", kind, r.Name)
					}
				}
			}
		case draft.Inbound:
			if in := k.Inbound(l.Inbound); in != nil {
				for _, r := range in.Rules {
					add(r.Subset, r)
				}
				for _, route := range in.Routes {
					for _, r := range route.Rules {
						add(route.Route.Name, r)
					}
				}
			}
			for i, kind := range []string{"OldGate", "OldFault", "OldLimit"} {
				for j, r := range c.Rules.LegacyInbound(kind, l.Inbound) {
					if i > 0 || j == 0 {
						fmt.Fprintf(&b, "%s/%s;", kind, r.Name)
					}
				}
			}
		}
		l.Message.StatPrefix = b.String()
	}
}

func marshaled(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// applyWhole writes the rules of Whole into the listeners.
func applyWhole(c *policy.Context, d *draft.Draft) {
	for _, l := range d.Listeners {
		if k := c.Rules.Kind("Whole"); k != nil {
			l.Message.StatPrefix += "whole=" + string(marshaled(k.Proxy.Conf))
		}
		if r := c.Rules.LegacyProxy("OldWhole"); r != nil {
			l.Message.StatPrefix += "old=" + string(marshaled(r.Spec))
		}
	}
	if k := c.Rules.Kind("Whole"); k != nil && c.Last {
		d.Clusters = append(d.Clusters, &draft.Cluster{Kind: draft.OtherCluster, Message: &clusterv3.Cluster{
			Name: "whole", AltStatName: string(marshaled(k.Proxy.Conf))}})
	}
}
