// Package legacy implements ProxyTemplate, the source-destination kind that MeshProxyPatch
// replaces, and its migration.
package legacy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

const kind = "ProxyTemplate"

// Origins of resources that templates add.
const (
	originTemplate = "proxy-template-modifications"
	originRaw      = "proxy-template-raw"
)

// Kind declares the kind.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "proxytemplates", "", resource.LegacyShape{
			Selectors: true, NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		ReplacedBy: []string{proxypatch.Kind},
		Migrate:    migrate,
	}
}

// Conf is the conf of ProxyTemplate.
type Conf struct {
	Imports       []string       `json:"imports,omitempty"`   // default-proxy for the generated config
	Resources     []Resource     `json:"resources,omitempty"` // resources to add
	Modifications []Modification `json:"modifications,omitempty"`
}

// Resource is an xDS resource that the template adds.
type Resource struct {
	Name     string           `json:"name,omitempty"`
	Version  string           `json:"version,omitempty"` // required but ignored
	Resource secret.EnvoyText `json:"resource,omitzero"` // YAML or JSON with @type

	change *proxypatch.Change // set by validation
}

// Modification is one change. Exactly one of the fields must be set.
type Modification struct {
	Cluster       *proxypatch.BaseMod[proxypatch.ClusterMatch]     `json:"cluster,omitempty"`
	Listener      *proxypatch.BaseMod[proxypatch.ListenerMatch]    `json:"listener,omitempty"`
	NetworkFilter *proxypatch.BaseMod[proxypatch.FilterMatch]      `json:"networkFilter,omitempty"`
	HTTPFilter    *proxypatch.BaseMod[proxypatch.FilterMatch]      `json:"httpFilter,omitempty"`
	VirtualHost   *proxypatch.BaseMod[proxypatch.VirtualHostMatch] `json:"virtualHost,omitempty"`

	change *proxypatch.Change // set by validation
}

// Plan implements [proxypatch.LegacyConf].
func (c *Conf) Plan(ctx *policy.Context, r *resource.Resource) proxypatch.Plan {
	bare := !slices.Contains(c.Imports, defaultProfile)
	if bare {
		ctx.Host.Warn(r.Key, "conf.imports does not contain %s, so the proxy has only the resources of this policy",
			defaultProfile)
	}
	for _, p := range c.Imports {
		if slices.Contains(otherProfiles(), p) {
			ctx.Host.Warn(r.Key, "conf.imports: %s has no effect, because this agent serves only sidecars (%s), not %s",
				p, defaultProfile, strings.Join(otherProfiles(), ", "))
		}
	}
	changes := append(c.resources(), c.modifications(len(c.Modifications))...)
	return proxypatch.Plan{Policy: r, Bare: bare, Changes: slices.DeleteFunc(changes, func(ch *proxypatch.Change) bool {
		return ch == nil
	})}
}

// resources returns the changes that add the resources; nil for invalid ones.
func (c *Conf) resources() []*proxypatch.Change {
	out := make([]*proxypatch.Change, len(c.Resources))
	for i := range out {
		out[i] = c.Resources[i].change
	}
	return out
}

// modifications returns the first n modifications as changes; nil for invalid ones.
func (c *Conf) modifications(n int) []*proxypatch.Change {
	out := make([]*proxypatch.Change, n)
	for i := range out {
		out[i] = c.Modifications[i].change
	}
	return out
}

// defaultProfile is the import of the config that the agent generates.
const defaultProfile = "default-proxy"

// otherProfiles returns the imports for proxies that this agent does not serve.
func otherProfiles() []string { return []string{"gateway-proxy", "ingress-proxy", "egress-proxy"} }

// Validate parses and validates all resources and values.
func (c *Conf) Validate(v *resource.Validator) {
	for i, p := range c.Imports {
		v.Field("imports").Index(i).OneOf(p, append([]string{defaultProfile}, otherProfiles()...)...)
	}
	for i := range c.Resources {
		c.Resources[i].read(v.Field("resources").Index(i), fmt.Sprintf("conf.resources[%d]", i))
	}
	for i := range c.Modifications {
		m := &c.Modifications[i]
		m.change = proxypatch.Read(v.Field("modifications").Index(i), fmt.Sprintf("conf.modifications[%d]", i),
			originTemplate,
			m.Cluster.As(proxypatch.Clusters), m.Listener.As(proxypatch.Listeners),
			m.NetworkFilter.As(proxypatch.NetworkFilters),
			m.HTTPFilter.As(proxypatch.HTTPFilters), m.VirtualHost.As(proxypatch.VirtualHosts))
	}
}

// read parses a whole resource.
func (r *Resource) read(v *resource.Validator, at string) {
	if r.Name == "" {
		v.Field("name").Faultf("the name is missing: give the name of the resource")
	}
	if r.Version == "" {
		v.Field("version").Faultf("the version is missing")
	}
	body := v.Field("resource")
	if r.Resource.IsZero() {
		body.Faultf("the resource is missing: give YAML or JSON of an Envoy message with @type")
		return
	}
	c := proxypatch.ReadResource(body, r.Resource.Reveal(), at, originRaw)
	if c == nil {
		return
	}
	if name, _, _ := c.Adds(); r.Name != "" && name != r.Name {
		v.Field("name").Faultf("%q differs from the name in the resource, %q: give the same name",
			toolkit.Clip(r.Name), toolkit.Clip(name))
		return
	}
	r.change = c
}
