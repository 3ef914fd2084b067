package bootstrap_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
)

// TestParse checks that each rendered bootstrap is parsed.
func TestParse(t *testing.T) {
	for _, o := range []bootstrap.Options{
		{Mesh: "default", Name: "web", XDSSocket: "/run/x.sock", AdminSocket: "/run/a.sock", Token: "a.b.c",
			Dataplane: []byte(`{"type": "Dataplane"}`)},
		{Mesh: "default", Name: "web", XDSAddress: bootstrap.XDSAddress{Address: "agent.test:15443", CA: "/ca", Cert: "/cert",
			Key: "/key"}},
		{Type: "egress", Name: "e", XDSAddress: bootstrap.XDSAddress{Address: "10.0.0.1:15443"}},
	} {
		out, err := bootstrap.Render(o)
		if err != nil {
			t.Fatal(err)
		}
		f, err := bootstrap.Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		auth := ""
		if o.Token != "" {
			auth = "Bearer " + o.Token
		}
		id := "default.web"
		if o.Type != "" {
			id = ".egress.e"
		}
		if f.Node.GetId() != id || f.XDSSocket != o.XDSSocket || f.XDSAddress != o.XDSAddress ||
			f.AdminSocket != o.AdminSocket || f.Authorization != auth ||
			(f.Node.GetMetadata().GetFields()["dataplane.resource"] != nil) != (o.Dataplane != nil) {
			t.Errorf("%+v\nis parsed as %+v", o, f)
		}
	}
}

// TestParseForms checks other forms of bootstraps, and the errors.
func TestParseForms(t *testing.T) {
	ads := func(service string) string {
		return `{"node": {"id": "default.web"}, "dynamicResources": {"adsConfig": {"grpcServices": [` + service + `]}},
			"staticResources": {"clusters": [{"name": "x", "loadAssignment": {"endpoints": [{"lbEndpoints": [{"endpoint":
			{"address": {"socketAddress": {"address": "::1", "portValue": 5}}}}]}]}}, {"name": "empty"}]}}`
	}
	for text, want := range map[string]string{
		ads(`{"envoyGrpc": {"clusterName": "x"}}`):                                     "[::1]:5",
		ads(`{"googleGrpc": {"targetUri": "unix:///run/x.sock"}}`):                     "/run/x.sock",
		ads(`{"googleGrpc": {"targetUri": "dns:///agent:15443"}}`):                     "agent:15443",
		`{"node": {"id": "a.b"}, "xds_servers": [{"server_uri": "unix:/run/x.sock"}]}`: "/run/x.sock",
		ads(`{"envoyGrpc": {"clusterName": "y"}}`):                                     `! the cluster "y"`,
		ads(`{"envoyGrpc": {"clusterName": "empty"}}`):                                 "! neither a pipe nor",
		ads(``):                  "! no ADS server",
		"node: {id: [1]}":        "! node:",
		"- 1":                    "! the field node is missing",
		"":                       "! the field node is missing",
		"a: b: c":                "! neither YAML nor JSON",
		"node: {? [x] : 1}":      "! invalid map key",
		"{node: {id: a}, 1: 2}":  "! the field node is missing",
		"node: {id: a, b: .nan}": "! node",
	} {
		f, err := bootstrap.Parse([]byte(text))
		got := ""
		if err != nil {
			got = "! " + err.Error()
		} else {
			got = f.XDSSocket + f.XDSAddress.Address
		}
		word, isError := strings.CutPrefix(want, "! ")
		if !isError && got != want || isError && (!strings.HasPrefix(got, "! ") || !strings.Contains(got, word)) {
			t.Errorf("%s\ngives %s, want %s", text, got, want)
		}
	}
}

// FuzzParse checks that no input panics.
func FuzzParse(f *testing.F) {
	out, err := bootstrap.Render(bootstrap.Options{Mesh: "default", Name: "web", XDSSocket: "/run/x.sock"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out)
	f.Add([]byte(`{"node": {"id": "a.b"}, "xds_servers": [{"server_uri": 5}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if file, err := bootstrap.Parse(data); err == nil {
			_ = fmt.Sprint(file.Node.GetId())
		}
	})
}
