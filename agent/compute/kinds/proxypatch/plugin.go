// Package proxypatch is the plugin of MeshProxyPatch: changes of Envoy's own messages, for what no
// other kind says. The ProxyTemplate that it replaces stands in its subfolder legacy.
//
// Its policies act last, on listeners, clusters, virtual hosts, network filters and HTTP filters
// that all others have made. A modification adds, removes, merges a message into another one, or
// applies a JSON Patch. Values are read strictly when a policy is applied: an unknown field, an
// unknown type or what Envoy would reject is a fault with its path.
//
// Whether a patch fits shows only on the resource that it patches. Of each resource a policy
// changes all that it wants or nothing: where a patch fails, or what comes out breaks one of
// Envoy's load rules for the structure of a resource, the resource stays without that policy, and a
// warning names it. The rules are those of package load.
package proxypatch

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Kind is the targetRef kind.
const Kind = "MeshProxyPatch"

// OriginPatch is the origin of what policies add.
const OriginPatch = "mesh-proxy-patch"

// LegacyConf is the conf of a source-destination kind with an effect of the same form. Of its
// policies one acts on a proxy.
type LegacyConf interface {
	Plan(c *policy.Context, r *resource.Resource) Plan
}

// Plugin declares the kind and its effect, with the legacy kind that it replaces.
func Plugin(legacy policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshproxypatches", "mpp", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Legacy: []policy.LegacyKind{legacy},
		Behind: func(f *policy.Flow) []policy.Written { return behind(f, legacy.Kind) },
		Apply: func(c *policy.Context, d *draft.Draft) {
			if plans := plansOf(c, legacy.Kind); len(plans) > 0 {
				(&editor{c: c, d: d, plans: plans}).run()
			}
		},
		NoEffect: noEffects,
	}
}

// noEffects says which fields of a policy have no effect.
func noEffects(c *policy.Context, p *resource.Resource) []policy.NoEffect {
	for _, w := range c.Warnings {
		if w.Resource == p.Key && w.Reason == noEffect {
			return []policy.NoEffect{{}}
		}
	}
	for _, field := range []string{"spec.default.appendModifications", "conf.modifications", "conf.resources"} {
		for _, w := range c.Warnings {
			if w.Resource == p.Key && strings.HasPrefix(w.Reason, field+"[") {
				return []policy.NoEffect{{Field: field, Part: true}}
			}
		}
	}
	return nil
}

// plansOf returns what the policies of the proxy want, the weakest first.
func plansOf(c *policy.Context, legacyKind string) []Plan {
	if k := c.Rules.Kind(Kind); k != nil && k.Proxy != nil {
		out := make([]Plan, 0, len(k.Proxy.Origins))
		for _, o := range k.Proxy.Origins {
			if p, ok := o.Policy.Spec.(*resource.Policy); ok {
				if conf, ok := p.Default.(*Conf); ok {
					out = append(out, Plan{Policy: o.Policy, Changes: conf.changes()})
				}
			}
		}
		return out
	}
	if r := c.Rules.LegacyProxy(legacyKind); r != nil {
		if p, ok := r.Spec.(*resource.LegacyPolicy); ok {
			if conf, ok := p.Conf.(LegacyConf); ok {
				return []Plan{conf.Plan(c, r)}
			}
		}
	}
	return nil
}

// checkPolicy finds policies that say nothing.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	if p.Default == nil {
		v.Field("default").Field("appendModifications").Faultf("the list is missing: give at least one modification")
	}
}

// Conf is the conf of MeshProxyPatch.
type Conf struct {
	// AppendModifications are applied in their order, those of weaker policies first.
	AppendModifications []Modification `json:"appendModifications,omitempty" merge:"append"`
}

// Modification is one change. Exactly one of the fields is given.
type Modification struct {
	Cluster       *Mod[ClusterMatch]     `json:"cluster,omitempty"`
	Listener      *Mod[ListenerMatch]    `json:"listener,omitempty"`
	NetworkFilter *Mod[FilterMatch]      `json:"networkFilter,omitempty"`
	HTTPFilter    *Mod[FilterMatch]      `json:"httpFilter,omitempty"`
	VirtualHost   *Mod[VirtualHostMatch] `json:"virtualHost,omitempty"`

	change *Change // made by validation
}

// Mod says what to do with what is matched.
type Mod[M Matcher[M]] struct {
	BaseMod[M]
	JSONPatches []JSONPatch `json:"jsonPatches,omitempty"`
}

// BaseMod is what modifications of all kinds of policies have.
type BaseMod[M Matcher[M]] struct {
	Match     *M        `json:"match,omitempty"` // nil: all
	Operation Operation `json:"operation,omitempty"`
	// Value is YAML or JSON of Envoy's message, or of a part of it for Patch.
	Value *secret.EnvoyText `json:"value,omitempty"`
}

// Mod returns what a modification of a legacy kind says, whose operations begin with a small letter
// and to which an empty text is one that is not given. Nil stays nil.
func (m *BaseMod[M]) Mod() *Mod[M] {
	if m == nil {
		return nil
	}
	out := &Mod[M]{BaseMod: BaseMod[M]{Value: textUnlessEmpty(m.Value)}}
	if m.Operation != "" {
		out.Operation = Operation(strings.ToUpper(string(m.Operation[:1])) + string(m.Operation[1:]))
	}
	if m.Match != nil {
		match := (*m.Match).withoutEmpty()
		out.Match = &match
	}
	return out
}

// unlessEmpty is nil for an empty text.
func unlessEmpty(s *string) *string {
	if s != nil && *s == "" {
		return nil
	}
	return s
}

func textUnlessEmpty(t *secret.EnvoyText) *secret.EnvoyText {
	if t != nil && t.IsZero() {
		return nil
	}
	return t
}

// Operation says what a modification does.
type Operation string

// The operations. Filters, whose order counts, have AddFirst and so on in the place of Add.
const (
	Add       Operation = "Add"
	Remove    Operation = "Remove"
	Patch     Operation = "Patch"
	AddFirst  Operation = "AddFirst"
	AddLast   Operation = "AddLast"
	AddBefore Operation = "AddBefore" // the filter that is matched
	AddAfter  Operation = "AddAfter"  // the filter that is matched
)

// JSONPatch is one operation of a JSON Patch (RFC 6902), without test.
type JSONPatch struct {
	Op    string            `json:"op"`
	Path  *string           `json:"path,omitempty"`
	Value secret.EnvoyValue `json:"value,omitzero"`
	From  *string           `json:"from,omitempty"`
}

// MarshalJSON writes the operation; a value below a field that holds secrets is one.
func (j JSONPatch) MarshalJSON() ([]byte, error) {
	type plain JSONPatch // without this method
	j.Value.Hidden = j.secret()
	return strict.MarshalJSON(plain(j))
}

// secret reports whether a field on the path holds secrets.
func (j *JSONPatch) secret() bool {
	if j.Path == nil {
		return false
	}
	tokens, err := jsonpatch.ParsePointer(*j.Path)
	return err != nil || slices.ContainsFunc(tokens, secret.Field)
}

// ClusterMatch matches clusters by all that is given.
type ClusterMatch struct {
	Origin *string `json:"origin,omitempty"` // inbound, outbound, transparent, direct-access or the policy kind's word
	Name   *string `json:"name,omitempty"`
}

// ListenerMatch matches listeners by all that is given.
type ListenerMatch struct {
	Origin *string           `json:"origin,omitempty"`
	Name   *string           `json:"name,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"` // of what the listener stands for; "*" is any value
}

// FilterMatch matches filters by all that is given.
type FilterMatch struct {
	Origin       *string           `json:"origin,omitempty"` // of the listener
	Name         *string           `json:"name,omitempty"`   // of the filter
	ListenerName *string           `json:"listenerName,omitempty"`
	ListenerTags map[string]string `json:"listenerTags,omitempty"`
}

// VirtualHostMatch matches virtual hosts by all that is given.
type VirtualHostMatch struct {
	Origin                 *string `json:"origin,omitempty"` // of the listener
	Name                   *string `json:"name,omitempty"`
	RouteConfigurationName *string `json:"routeConfigurationName,omitempty"`
}

// match is what a modification is about. Nil, and no tags, match all.
type match struct {
	origin, name *string
	listener     *string // name of the listener, for filters
	routes       *string // name of the route configuration, for virtual hosts
	tags         map[string]string
}

// Matcher is a match as it is written.
type Matcher[M any] interface {
	match() match
	withoutEmpty() M // empty texts are not given
}

func (m ClusterMatch) match() match  { return match{origin: m.Origin, name: m.Name} }
func (m ListenerMatch) match() match { return match{origin: m.Origin, name: m.Name, tags: m.Tags} }
func (m FilterMatch) match() match {
	return match{origin: m.Origin, name: m.Name, listener: m.ListenerName, tags: m.ListenerTags}
}
func (m VirtualHostMatch) match() match {
	return match{origin: m.Origin, name: m.Name, routes: m.RouteConfigurationName}
}

func (m ClusterMatch) withoutEmpty() ClusterMatch {
	return ClusterMatch{unlessEmpty(m.Origin), unlessEmpty(m.Name)}
}
func (m ListenerMatch) withoutEmpty() ListenerMatch {
	return ListenerMatch{unlessEmpty(m.Origin), unlessEmpty(m.Name), m.Tags}
}
func (m FilterMatch) withoutEmpty() FilterMatch {
	return FilterMatch{unlessEmpty(m.Origin), unlessEmpty(m.Name), unlessEmpty(m.ListenerName), m.ListenerTags}
}
func (m VirtualHostMatch) withoutEmpty() VirtualHostMatch {
	return VirtualHostMatch{unlessEmpty(m.Origin), unlessEmpty(m.Name), unlessEmpty(m.RouteConfigurationName)}
}
