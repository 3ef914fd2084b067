// Package proxypatch implements MeshProxyPatch: changes of Envoy's messages, for settings that no
// other kind supports. The subfolder legacy implements ProxyTemplate, which it replaces.
//
// MeshProxyPatch policies are applied last, to the listeners, clusters, virtual hosts, network
// filters, and HTTP filters that other kinds have created. A modification adds, removes, or merges
// a message, or applies a JSON Patch. Values are validated strictly when a policy is stored:
// unknown fields, unknown types, and values that Envoy would reject are faults with a path.
//
// Whether a patch is applicable depends on the patched resource. All changes of a policy to a
// resource apply, or none: if a patch fails, or if the result violates one of Envoy's structural
// rules, the resource is left unchanged and a warning names it.
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

// Kind is the policy kind of the plugin.
const Kind = "MeshProxyPatch"

// OriginPatch is the origin of resources that policies add.
const OriginPatch = "mesh-proxy-patch"

// LegacyConf is the conf of a source-destination kind with the same kind of effect. Only one of its
// policies applies to a proxy.
type LegacyConf interface {
	Plan(c *policy.Context, r *resource.Resource) Plan
}

// Plugin declares the kind with the legacy kind that it replaces.
func Plugin(legacy policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshproxypatches", "mpp", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset", "MeshGateway", "Dataplane"},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Legacy: []policy.LegacyKind{legacy},
		ByName: true,
		Causes: func(f *policy.Flow) []policy.FieldRef { return behind(f, legacy.Kind) },
		Apply: func(c *policy.Context, d *draft.Draft) {
			if plans := plansOf(c, legacy.Kind); len(plans) > 0 {
				(&editor{c: c, d: d, plans: plans}).run()
			}
		},
	}
}

// plansOf returns the plans of the proxy's policies, the weakest first.
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

// checkPolicy rejects policies without modifications.
func checkPolicy(p *resource.Policy, v *resource.Validator) {
	if p.Default == nil {
		v.Field("default").Field("appendModifications").Faultf("the list is missing: give at least one modification")
	}
}

// Conf is the conf of MeshProxyPatch.
type Conf struct {
	// AppendModifications are applied in order, after those of weaker policies.
	AppendModifications []Modification `json:"appendModifications,omitempty" merge:"append"`
}

// Modification is one change. Exactly one of the fields must be set.
type Modification struct {
	Cluster       *Mod[ClusterMatch]     `json:"cluster,omitempty"`
	Listener      *Mod[ListenerMatch]    `json:"listener,omitempty"`
	NetworkFilter *Mod[FilterMatch]      `json:"networkFilter,omitempty"`
	HTTPFilter    *Mod[FilterMatch]      `json:"httpFilter,omitempty"`
	VirtualHost   *Mod[VirtualHostMatch] `json:"virtualHost,omitempty"`

	change *Change // set by validation
}

// Mod is a change of matching objects.
type Mod[M Matcher[M]] struct {
	BaseMod[M]
	JSONPatches []JSONPatch `json:"jsonPatches,omitempty"`
}

// BaseMod holds the fields of modifications that all kinds have in common.
type BaseMod[M Matcher[M]] struct {
	Match     *M        `json:"match,omitempty"` // Default all
	Operation Operation `json:"operation,omitempty"`
	// Value is YAML or JSON of Envoy's message, or of the fields to merge for Patch.
	Value *secret.EnvoyText `json:"value,omitempty"`
}

// Mod converts a modification of a legacy kind, in which operations begin with a lower-case letter
// and empty strings count as unset. It returns nil for nil.
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

// unlessEmpty returns nil for an empty string.
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

// Operation is the operation of a modification.
type Operation string

// Operations. Filters are ordered, so they have AddFirst, AddLast, AddBefore, and AddAfter instead
// of Add.
const (
	Add       Operation = "Add"
	Remove    Operation = "Remove"
	Patch     Operation = "Patch"
	AddFirst  Operation = "AddFirst"
	AddLast   Operation = "AddLast"
	AddBefore Operation = "AddBefore" // before the matched filter
	AddAfter  Operation = "AddAfter"  // after the matched filter
)

// JSONPatch is one operation of a JSON Patch (RFC 6902), without test.
type JSONPatch struct {
	Op    string            `json:"op"`
	Path  *string           `json:"path,omitempty"`
	Value secret.EnvoyValue `json:"value,omitzero"`
	From  *string           `json:"from,omitempty"`
}

// MarshalJSON encodes the operation and hides the value if its path contains a secret field.
func (j JSONPatch) MarshalJSON() ([]byte, error) {
	type plain JSONPatch // without this method
	j.Value.Hidden = j.secret()
	return strict.MarshalJSON(plain(j))
}

// secret reports whether a field on the path contains secrets.
func (j *JSONPatch) secret() bool {
	if j.Path == nil {
		return false
	}
	tokens, err := jsonpatch.ParsePointer(*j.Path)
	return err != nil || slices.ContainsFunc(tokens, secret.Field)
}

// ClusterMatch matches clusters by all set fields.
type ClusterMatch struct {
	// inbound, outbound, transparent, direct-access, or the origin of a policy kind
	Origin *string `json:"origin,omitempty"`
	Name   *string `json:"name,omitempty"`
}

// ListenerMatch matches listeners by all set fields.
type ListenerMatch struct {
	Origin *string           `json:"origin,omitempty"`
	Name   *string           `json:"name,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"` // tags of the inbound or outbound; "*" matches any value
}

// FilterMatch matches filters by all set fields.
type FilterMatch struct {
	Origin       *string           `json:"origin,omitempty"` // of the listener
	Name         *string           `json:"name,omitempty"`   // of the filter
	ListenerName *string           `json:"listenerName,omitempty"`
	ListenerTags map[string]string `json:"listenerTags,omitempty"`
}

// VirtualHostMatch matches virtual hosts by all set fields.
type VirtualHostMatch struct {
	Origin                 *string `json:"origin,omitempty"` // of the listener
	Name                   *string `json:"name,omitempty"`
	RouteConfigurationName *string `json:"routeConfigurationName,omitempty"`
}

// match is a normalized match. Nil fields, and no tags, match everything.
type match struct {
	origin, name *string
	listener     *string // name of the listener, for filters
	routes       *string // name of the route configuration, for virtual hosts
	tags         map[string]string
}

// Matcher is a match in a document.
type Matcher[M any] interface {
	match() match
	withoutEmpty() M // treats empty strings as unset
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
