package proxypatch

// LegacyConf is the conf of ProxyTemplate.
type LegacyConf struct {
	Imports       []string             `json:"imports,omitempty"`   // default-proxy: what the agent generates
	Resources     []LegacyResource     `json:"resources,omitempty"` // are added
	Modifications []LegacyModification `json:"modifications,omitempty"`
}

// LegacyResource is a whole resource.
type LegacyResource struct {
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`  // required, and of no meaning: versions are made of the content
	Resource string `json:"resource,omitempty"` // YAML or JSON with @type

	change *change // made by validation
}

// LegacyModification is one change. Exactly one of the fields is given.
type LegacyModification struct {
	Cluster       *LegacyMod[LegacyClusterMatch]     `json:"cluster,omitempty"`
	Listener      *LegacyMod[LegacyListenerMatch]    `json:"listener,omitempty"`
	NetworkFilter *LegacyMod[LegacyFilterMatch]      `json:"networkFilter,omitempty"`
	HTTPFilter    *LegacyMod[LegacyFilterMatch]      `json:"httpFilter,omitempty"`
	VirtualHost   *LegacyMod[LegacyVirtualHostMatch] `json:"virtualHost,omitempty"`

	change *change // made by validation
}

// LegacyMod says what to do with what is matched.
type LegacyMod[M matcher] struct {
	Match     *M     `json:"match,omitempty"`
	Operation string `json:"operation,omitempty"` // the operations with a small first letter
	Value     string `json:"value,omitempty"`
}

// LegacyClusterMatch matches clusters; "" is any.
type LegacyClusterMatch struct {
	Origin string `json:"origin,omitempty"`
	Name   string `json:"name,omitempty"`
}

// LegacyListenerMatch matches listeners; "" is any.
type LegacyListenerMatch struct {
	Origin string            `json:"origin,omitempty"`
	Name   string            `json:"name,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`
}

// LegacyFilterMatch matches filters; "" is any.
type LegacyFilterMatch struct {
	Origin       string            `json:"origin,omitempty"`
	Name         string            `json:"name,omitempty"`
	ListenerName string            `json:"listenerName,omitempty"`
	ListenerTags map[string]string `json:"listenerTags,omitempty"`
}

// LegacyVirtualHostMatch matches virtual hosts; "" is any.
type LegacyVirtualHostMatch struct {
	Origin                 string `json:"origin,omitempty"`
	Name                   string `json:"name,omitempty"`
	RouteConfigurationName string `json:"routeConfigurationName,omitempty"`
}

func (m LegacyClusterMatch) match() match {
	return match{origin: unlessEmpty(m.Origin), name: unlessEmpty(m.Name)}
}
func (m LegacyListenerMatch) match() match {
	return match{origin: unlessEmpty(m.Origin), name: unlessEmpty(m.Name), tags: m.Tags}
}
func (m LegacyFilterMatch) match() match {
	return match{origin: unlessEmpty(m.Origin), name: unlessEmpty(m.Name), listener: unlessEmpty(m.ListenerName), tags: m.ListenerTags}
}
func (m LegacyVirtualHostMatch) match() match {
	return match{origin: unlessEmpty(m.Origin), name: unlessEmpty(m.Name), routes: unlessEmpty(m.RouteConfigurationName)}
}

func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
