package generate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestCheckOfRealSecrets checks, for every input in the repository, that the check has the same
// findings with real certificates as with placeholders, and that it reports unusable certificates.
func TestCheckOfRealSecrets(t *testing.T) {
	inputs := kindtest.OwnInputs(t)
	if files, err := kindtest.ConformanceFiles(); err == nil && len(files) > 0 {
		inputs = append(inputs, kindtest.ConformanceInputs(t)...)
	}
	s := newSecrets(t)
	var shared check.Checker
	find := func(in generate.Input) (lines []string, with int) {
		p, err := generate.Generate(in, nil, nil)
		if err != nil {
			return nil, 0
		}
		for _, f := range p.Check(&shared, nil) {
			lines = append(lines, findingLine(f))
		}
		return lines, len(p.Sealed.Resources[draft.Rank(draft.TypeSecret)])
	}
	proxies := 0
	for _, in := range inputs {
		set := resource.NewSet(in.Resources)
		for _, r := range set.Kind("Mesh") {
			m, err := generate.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			dps := m.View.Dataplanes()
			if b := m.View.Spec.MTLSEnabled(); b == nil || b.Type != "builtin" || len(dps) == 0 {
				continue
			}
			real := s.of(m.View, dps[0].Name) // the check does not depend on the certificate's owner
			for _, dp := range dps {
				in := generate.Input{Mesh: m, Name: dp.Name, Flavor: node.FlavorEnvoy}
				want, with := find(in)
				in.Secrets = real
				got, _ := find(in)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: -with placeholders +with certificates:\n%s", dp.Key, d)
				}
				if with == 0 {
					continue
				}
				proxies++
				in.Secrets = new(identity.Secrets)
				if got, _ := find(in); !strings.Contains(strings.Join(got, "\n"),
					"reject 92 Secret/identity_cert:secret:"+m.View.Name) {
					t.Errorf("%s: certificates that are empty: %q", dp.Key, got)
				}
			}
		}
	}
	if proxies < 20 {
		t.Errorf("only %d proxies with secrets were checked", proxies)
	}
}

// TestCheckOfMissingSecrets checks that a patched reference to a secret that the proxy does not
// receive is reported, with and without the proxy's own secrets.
func TestCheckOfMissingSecrets(t *testing.T) {
	b := newBorder(t, decode(t, "input", []byte(borderMesh("default", "")+dataplaneOf("default", "")+`---
type: MeshProxyPatch
mesh: default
name: another
spec:
  targetRef: {kind: Mesh}
  default:
    appendModifications:
    - cluster:
        operation: Add
        value: |
          name: patched
          connect_timeout: 1s
          transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
              common_tls_context:
                tls_certificate_sds_secret_configs: [{name: mine, sds_config: {ads: {}}}]
`)), nil)
	s := newSecrets(t)
	for _, secrets := range []*identity.Secrets{nil, s.of(b.meshes[0].View, "web")} {
		p, err := generate.Generate(generate.Input{Mesh: b.meshes[0], Name: "web", Flavor: node.FlavorEnvoy,
			Secrets: secrets}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := p.Check(&check.Checker{}, nil)
		if len(found) != 1 || found[0].Rule != 98 || found[0].Resource != "patched" ||
			!strings.Contains(found[0].Message, `"mine"`) {
			t.Errorf("with secrets %v: %+v", secrets, found)
		}
	}
}
