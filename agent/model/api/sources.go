package api

// ConfigSources is GET /v1/dataplanes/{mesh}/{name}/sources: the policies behind values of a
// proxy's config. Other values do not depend on a policy, or several policies set them equally.
type ConfigSources struct {
	Mesh  string         `json:"mesh"`
	Name  string         `json:"name"`
	Items []ConfigSource `json:"items"` // sorted by type, resource, and path; never null
	// Truncated says why sources or fields may be missing; absent if none are.
	Truncated string `json:"truncated,omitempty"`
}

// ConfigSource is a value in the config, with the policies without which it would differ.
type ConfigSource struct {
	Type     string `json:"type"`     // type URL
	Resource string `json:"resource"` // of the config
	// Path leads to the value as in the items of a diff; "" is the whole resource.
	Path string `json:"path"`
	// By are the policies in the order in which they are applied, with the innermost field that
	// determines the value; "" if only the whole policy does.
	By []FlowPolicy `json:"by"`
}
