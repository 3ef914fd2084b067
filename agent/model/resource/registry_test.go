package resource_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// timeoutConf is the typed conf of an example plugin, with its own check.
type timeoutConf struct {
	ConnectionTimeout *resource.Duration `json:"connectionTimeout,omitempty"`
	HTTP              *struct {
		RequestTimeout    *resource.Duration `json:"requestTimeout,omitempty"`
		StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	} `json:"http,omitempty"`
}

func (c *timeoutConf) Validate(v *resource.Validator) {
	if c.ConnectionTimeout != nil && c.ConnectionTimeout.Duration == 0 {
		v.Field("connectionTimeout").Faultf("0s is not allowed")
	}
}

func raw() resource.Conf { return new(resource.RawConf) }

// registry returns the core kinds and one kind of every shape.
func registry(t testing.TB) *resource.Registry {
	t.Helper()
	ds := append(resource.Core(),
		resource.PolicyDescriptor("MeshTimeout", "meshtimeouts", "mt", resource.PolicyShape{
			Top: []string{"Mesh", "MeshSubset", "MeshServiceSubset"}, TopToOnly: []string{"MeshGateway"},
			From: []string{"Mesh"}, To: []string{"Mesh", "MeshService"},
			NewConf: func() resource.Conf { return new(timeoutConf) },
		}),
		resource.PolicyDescriptor("MeshAccessLog", "meshaccesslogs", "", resource.PolicyShape{
			Top: []string{"Mesh"}, TopFromOnly: []string{"MeshHTTPRoute"}, From: []string{"Mesh"}, To: []string{"Mesh"},
			MeshName: true, NewConf: raw,
		}),
		resource.PolicyDescriptor("MeshHTTPRoute", "meshhttproutes", "", resource.PolicyShape{
			Top: []string{"Mesh", "MeshService"}, To: []string{"MeshService"}, Inline: true, NewConf: raw,
		}),
		resource.PolicyDescriptor("MeshPassthrough", "meshpassthroughs", "", resource.PolicyShape{
			Top: []string{"Mesh"}, Default: true, NewConf: raw,
			Check: func(p *resource.Policy, v *resource.Validator) {
				if c, ok := p.Default.(*resource.RawConf); ok && string(c.JSON) == `{"check":"me"}` {
					v.Field("default").Field("check").Faultf("found by the plugin")
				}
			},
		}),
		resource.LegacyDescriptor("Timeout", "timeouts", "", resource.LegacyShape{NewConf: raw, ConfRequired: true}),
		resource.LegacyDescriptor("TrafficPermission", "traffic-permissions", "", resource.LegacyShape{}),
		resource.LegacyDescriptor("ProxyTemplate", "proxytemplates", "", resource.LegacyShape{Selectors: true, NewConf: raw}),
		resource.Descriptor{
			Kind: "MeshAccessLogBackend", Plural: "meshaccesslogbackends",
			New: func() resource.Spec { return new(resource.RawSpec) },
		},
	)
	r, err := resource.NewRegistry(ds...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
