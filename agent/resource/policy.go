package resource

// Conf is what one policy kind adds to the shape that all policies share.
type Conf interface {
	Validate(v *Validator)
}

// TargetRef says what a policy, or one of its items, is about.
type TargetRef struct {
	Kind        string            `json:"kind"`
	Name        string            `json:"name,omitempty"`
	Namespace   string            `json:"namespace,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	SectionName string            `json:"sectionName,omitempty"`
	Mesh        string            `json:"mesh,omitempty"`
	ProxyTypes  []string          `json:"proxyTypes,omitempty"`
}

// Policy is the shape shared by all targetRef policies. The plugin of a kind supplies the Conf types through
// the PolicyShape of its descriptor.
type Policy struct {
	Shape     *PolicyShape
	TargetRef *TargetRef   // nil: the whole mesh
	From      []PolicyItem // traffic that arrives
	To        []PolicyItem // traffic that leaves
	Default   Conf         // for kinds that act on the proxy as a whole
}

// PolicyItem is one entry of from or to.
type PolicyItem struct {
	TargetRef TargetRef
	Conf      Conf
}

// PolicyShape says what a policy kind may hold.
type PolicyShape struct {
	Top []string // kinds that the top-level targetRef may have
	// TopFromOnly lists further kinds of the top-level targetRef that are allowed only where the policy has no to:
	// routes that are matched where traffic arrives.
	TopFromOnly []string
	// TopToOnly lists further kinds of the top-level targetRef that are allowed only where the policy has no from.
	TopToOnly []string
	// MeshName is true where kind Mesh may carry a name and kind MeshService tags, as the design of MeshAccessLog has it.
	MeshName bool
	From     []string // kinds that a from item may have; empty: from is refused
	To       []string // kinds that a to item may have; empty: to is refused
	// Default is true for kinds with spec.default.
	Default bool
	// Inline is true where the fields of an item beside targetRef are the conf (MeshHTTPRoute: hostnames, rules);
	// false where the conf stands below default.
	Inline bool
	// NewConf returns an empty conf to decode into.
	NewConf func() Conf
	// Check, when set, is the plugin's own check of what neither the shape nor one conf can say. It runs last.
	Check func(p *Policy, v *Validator)
}

// LegacyPolicy is the shape of the source-destination policies (legacy).
type LegacyPolicy struct {
	Shape        *LegacyShape     `json:"-"`
	Sources      []LegacySelector `json:"sources,omitempty"`      // connections from
	Destinations []LegacySelector `json:"destinations,omitempty"` // connections to
	Selectors    []LegacySelector `json:"selectors,omitempty"`    // ProxyTemplate: the proxies
	Conf         Conf             `json:"conf,omitempty"`         // nil where the document has none
}

// LegacyShape says what a legacy kind may hold.
type LegacyShape struct {
	// Selectors is true for kinds that select proxies (ProxyTemplate); the others select connections by sources and
	// destinations.
	Selectors bool
	// NewConf returns an empty conf to decode into; nil for kinds without one (TrafficPermission).
	NewConf func() Conf
	// ConfRequired is true where a policy without conf says nothing.
	ConfRequired bool
}

// LegacySelector matches tags; the value "*" matches any.
type LegacySelector struct {
	Match map[string]string `json:"match"`
}
