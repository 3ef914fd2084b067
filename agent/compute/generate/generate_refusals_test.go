package generate_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestRefusals checks the errors for proxies that cannot be generated. Each error names the cause
// and the fix.
func TestRefusals(t *testing.T) {
	v := view(t, decode(t, "mesh", []byte("type: Mesh\nname: default\n")), nil)
	var missing *generate.NotFoundError
	if _, err := generate.Generate(input(v, "other"), nil, nil); !errors.As(err, &missing) || missing.Name != "other" {
		t.Errorf("got %v, want a NotFoundError", err)
	}
	if _, err := mesh.Build(resource.NewSet(nil), "default", mesh.Options{}, nil); err == nil ||
		!strings.Contains(err.Error(), `"default"`) {
		t.Errorf("got %v, want an error that names the mesh", err)
	}
}

// TestSecretsAreHidden checks that the rendered config does not contain the private key of a client
// certificate.
func TestSecretsAreHidden(t *testing.T) {
	a, err := txtar.ParseFile("testdata/generate/external.txtar")
	if err != nil {
		t.Fatal(err)
	}
	config, err := generated(t, view(t, decode(t, "external", a.Files[0].Data), nil), "web", node.FlavorEnvoy,
		nil, nil).JSON()
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"KEY": false, "CERT": true} {
		if got := bytes.Contains(j, []byte(base64.StdEncoding.EncodeToString([]byte(text)))); got != want {
			t.Errorf("the config holds %s: %v, want %v", text, got, want)
		}
	}
}

// input returns the input for the Envoy of a dataplane in a mesh without policies.
func input(v *mesh.View, name string) generate.Input {
	return generate.Input{Mesh: &generate.Mesh{View: v}, Name: name, Flavor: node.FlavorEnvoy}
}
