package effect

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Verdict says whether a policy is in force on one proxy.
type Verdict struct {
	// Effect is one of api.Effect*. A policy that changes the config has EffectAll, whether or not
	// each of its fields does; see [Examiner.Fields]. It has EffectPart if the Envoy was given only
	// some of the changes.
	Effect string
	// Selected is true if the policy selects the proxy. Others may be affected as well, for example
	// by a permission of a service that they reach.
	Selected bool
	// By are the policies that override this one, or that set the same values.
	By []api.Ref
	// Reason says why the policy has no effect; "" if that is unknown or it has one.
	Reason string
	// Changed are resources that leaving out the policy would change: all of them if a published
	// config is judged, and some of them otherwise.
	Changed []draft.ResourceID
	// placed is true if a rule with an item of the policy applies somewhere on the proxy.
	placed bool
	// Held says why the Envoy was not given what the policy changes; "" if it was. The policy itself
	// may be correct.
	Held string
}

// noEffect is how the warnings of policies without effect begin. The reason follows.
const noEffect = "no effect on any proxy: "

// Warning describes a policy that selects proxies and has no effect on any.
func (v *MeshVerdict) Warning() string {
	var why []string
	if v.Reason != "" {
		why = append(why, v.Reason)
	}
	if len(v.By) > 0 {
		names := make([]string, len(v.By))
		for i, by := range v.By {
			names[i] = by.String()
		}
		why = append(why, "overridden by "+strings.Join(names, ", "))
	}
	if len(why) == 0 {
		return noEffect + unexplainedText
	}
	return noEffect + strings.Join(why, "; ")
}

const unexplainedText = "leaving it out changes no config"

// Because replaces the reason of [MeshVerdict.Warning] by the first of other warnings about the
// policy in lexical order, if the reason is not known.
func Because(warning string, others []string) string {
	if warning != noEffect+unexplainedText || len(others) == 0 {
		return warning
	}
	return noEffect + slices.Min(others)
}

// WithLacking adds the warning about a policy without effect to warnings, instead of those about
// the policy that it contains.
func WithLacking(list []mesh.Warning, r *resource.Resource, v *MeshVerdict) []mesh.Warning {
	var others []string
	for _, w := range list {
		if w.Resource == r.Key {
			others = append(others, w.Reason)
		}
	}
	reason := Because(v.Warning(), others)
	list = slices.DeleteFunc(slices.Clone(list), func(w mesh.Warning) bool {
		return w.Resource == r.Key && strings.Contains(reason, w.Reason)
	})
	return append(list, mesh.Warning{Resource: r.Key, Reason: reason})
}

// InForce reports whether leaving out the policy would change the published config.
func (v *Verdict) InForce() bool { return v.Effect == api.EffectAll || v.Effect == api.EffectPart }

// MeshVerdict says whether a policy is in force on any proxy.
type MeshVerdict struct {
	// Verdict is about the first proxy where the policy is in force. If there is none, it is about
	// the first proxy with the strongest other effect: unknown, held, same, default, overridden, none.
	Verdict
	Dataplane string // of Verdict; "" if the policy affects no proxy
	// Selected is the number of proxies that the policy selects, up to Dataplane if it is in force
	// there.
	Selected int
}

// explain completes the verdict on a policy that selects a proxy and changes nothing there.
func (x *Examiner) explain(v *Verdict, r *resource.Resource, p *proxy) {
	v.Reason = reasonOf(question{mesh: x.mesh, dataplane: p.dataplane, policy: r, warnings: p.config.Warnings,
		inbound: -1})
	items := x.fieldsOf(r, p)
	if v.Effect = SumOf(items, func(it Item) string { return it.Effect }); v.InForce() {
		v.Effect = withoutAny(items)
	}
	var reasons []string
	add := func(reason string) {
		if reason != "" && !slices.Contains(reasons, reason) && len(reasons) < maxReasons {
			reasons = append(reasons, reason)
		}
	}
	for i := range items {
		v.placed = v.placed || len(items[i].Places) > 0
		add(items[i].Reason)
		for j := range items[i].Places {
			for _, f := range items[i].Places[j].Fields {
				if f.Effect != v.Effect {
					continue
				}
				add(f.Reason)
				for _, by := range f.By {
					if ref := (api.Ref{Type: by.Type, Mesh: by.Mesh, Name: by.Name}); ref.Key() != r.Key &&
						!slices.Contains(v.By, ref) {
						v.By = append(v.By, ref)
					}
				}
			}
		}
	}
	if v.Reason == "" && v.Effect == api.EffectNone {
		v.Reason = strings.Join(reasons, "; ")
	}
}

// withoutAny returns the effect of a policy whose fields change the config, although leaving out
// all of them does not: they repeat the default, unless other fields have no effect.
func withoutAny(items []Item) string {
	var rest []string
	for i := range items {
		for j := range items[i].Places {
			for _, f := range items[i].Places[j].Fields {
				if f.Effect != api.EffectAll && f.Effect != api.EffectPart {
					rest = append(rest, f.Effect)
				}
			}
		}
	}
	if len(rest) == 0 {
		return api.EffectDefault
	}
	return SumOf(rest, func(effect string) string { return effect })
}

// maxReasons limits the reasons of one verdict.
const maxReasons = 3
