package legacy

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// defaultProfile stands for what the agent generates for a proxy.
const defaultProfile = "default-proxy"

// otherProfiles are for proxies that this agent does not serve.
func otherProfiles() []string { return []string{"gateway-proxy", "ingress-proxy", "egress-proxy"} }

// Validate reads all resources and values, and reports what is wrong with them.
func (c *Conf) Validate(v *resource.Validator) {
	for i, p := range c.Imports {
		v.Field("imports").Index(i).OneOf(p, append([]string{defaultProfile}, otherProfiles()...)...)
	}
	for i := range c.Resources {
		c.Resources[i].read(v.Field("resources").Index(i), fmt.Sprintf("conf.resources[%d]", i))
	}
	for i := range c.Modifications {
		m := &c.Modifications[i]
		m.change = proxypatch.Read(v.Field("modifications").Index(i), fmt.Sprintf("conf.modifications[%d]", i), originTemplate,
			m.Cluster.As(proxypatch.Clusters), m.Listener.As(proxypatch.Listeners), m.NetworkFilter.As(proxypatch.NetworkFilters),
			m.HTTPFilter.As(proxypatch.HTTPFilters), m.VirtualHost.As(proxypatch.VirtualHosts))
	}
}

// read reads a whole resource.
func (r *Resource) read(v *resource.Validator, at string) {
	if r.Name == "" {
		v.Field("name").Faultf("the name is missing: give that of the resource")
	}
	if r.Version == "" {
		v.Field("version").Faultf("the version is missing")
	}
	body := v.Field("resource")
	if r.Resource == "" {
		body.Faultf("the resource is missing: give YAML or JSON of an Envoy message with @type")
		return
	}
	c := proxypatch.ReadResource(body, r.Resource, at, originRaw)
	if c == nil {
		return
	}
	if name, _, _ := c.Adds(); r.Name != "" && name != r.Name {
		v.Field("name").Faultf("%q is not the name in the resource, %q: give the same", toolkit.Clip(r.Name), toolkit.Clip(name))
		return
	}
	r.change = c
}
