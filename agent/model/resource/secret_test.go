package resource_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// keys returns documents with the same key in each field that accepts one, and the key.
func keys(t testing.TB) (docs map[string]string, leaks *secrettest.Leaks) {
	t.Helper()
	cert, key := secrettest.Authority(t, "x")
	leaks = &secrettest.Leaks{}
	leaks.Key(t, "key", key)
	quoted := func(b []byte) string { out, _ := json.Marshal(string(b)); return string(out) }
	encoded := base64.StdEncoding.EncodeToString
	pair := func(cert, key, c, k string) string {
		return fmt.Sprintf(`%q: {"inlineString": %s}, %q: %s`, cert, c, key, k)
	}
	return map[string]string{
		"mesh text": fmt.Sprintf(`{"type": "Mesh", "name": "m", "mtls": {"enabledBackend": "own", "backends": [{"name": "own", "type": "provided", "conf": {%s}}]}}`,
			pair("cert", "key", quoted(cert), `{"inlineString": `+quoted(key)+`}`)),
		"mesh bytes": fmt.Sprintf(
			`{"type": "Mesh", "name": "m", "mtls": {"backends": [{"name": "own", "type": "provided", "conf": {%s}}]}}`,
			pair("cert", "key", quoted(cert), fmt.Sprintf(`{"inline": %q}`, encoded(key)))),
		"external service": fmt.Sprintf(`{"type": "ExternalService", "name": "e", "mesh": "m", "tags": {"kuma.io/service": "e"}, "networking": {"address": "e:443", "tls": {"enabled": true, %s}}}`,
			pair("clientCert", "clientKey", quoted(cert), `{"inlineString": `+quoted(key)+`}`)),
		"mesh external service": fmt.Sprintf(`{"type": "MeshExternalService", "name": "e", "mesh": "m", "spec": {"match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
			"endpoints": [{"address": "e", "port": 443}], "tls": {"enabled": true, "verification": {%s}}}}`,
			pair("clientCert", "clientKey", quoted(cert), fmt.Sprintf(`{"inline": %q}`, encoded(key)))),
		"key in a certificate": fmt.Sprintf(`{"type": "ExternalService", "name": "e", "mesh": "m", "tags": {"kuma.io/service": "e"}, "networking": {"address": "e:443", "tls": {"enabled": true, "caCert": {"inlineString": %s}}}}`,
			quoted(append(cert, key...))),
		"key in a certificate, bytes": fmt.Sprintf(`{"type": "ExternalService", "name": "e", "mesh": "m", "tags": {"kuma.io/service": "e"}, "networking": {"address": "e:443", "tls": {"enabled": true, "caCert": {"inline": %q}}}}`,
			encoded(append(cert, key...))),
	}, leaks
}

// TestSecretsAreNotShown checks that no output of a resource contains its key, except the canonical
// form.
func TestSecretsAreNotShown(t *testing.T) {
	r := registry(t)
	docs, leaks := keys(t)
	for name, doc := range docs {
		res := one(t, r, doc)
		if leaks.In([]byte(canonical(t, res))) == "" {
			t.Errorf("%s: the canonical form has lost the key", name)
		}
		restored := one(t, r, canonical(t, res))
		if restored.Digest != res.Digest {
			t.Errorf("%s: what is read back from disk is another resource", name)
		}
		shown, err := resource.Shown(res)
		if err != nil || !bytes.Contains(shown, []byte(secret.Redacted)) {
			t.Errorf("%s: shown as %s, %v", name, shown, err)
		}
		texts := map[string]string{"Shown": string(shown)}
		if strings.HasPrefix(name, "key in") {
			continue // the others are type names, and CERTIFICATE is one
		}
		values := []any{res, *res, res.Spec, []*resource.Resource{res}, map[string]any{"x": res.Spec}}
		switch spec := res.Spec.(type) {
		case *resource.Mesh:
			c := spec.MTLS.Backends[0].Conf
			values = append(values, *spec, spec.MTLS.Backends, *c, c.Key, *c.Key, c.Key.Inline, c.Key.InlineString,
				struct{ k resource.KeySource }{*c.Key})
		case *resource.ExternalService:
			values = append(values, *spec, *spec.Networking.TLS, spec.Networking.TLS.ClientKey)
		case *resource.MeshExternalService:
			values = append(values, *spec, *spec.TLS.Verification)
		}
		for i, v := range values {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
				texts[fmt.Sprint(i, verb)] = fmt.Sprintf(verb, v)
			}
			if b, err := json.Marshal(v); err != nil {
				t.Errorf("%s: %T: %v", name, v, err)
			} else {
				texts[fmt.Sprint(i, " json")] = string(b)
			}
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Error("x", "v", v, slog.Group("g", "v", v))
			slog.New(slog.NewJSONHandler(&log, nil)).Error("x", "v", v, slog.Group("g", "v", v))
			texts[fmt.Sprint(i, " slog")] = log.String()
		}
		for how, text := range texts {
			if got := leaks.In([]byte(text)); got != "" {
				t.Errorf("%s: %s shows the key: %s", name, how, got)
			}
		}
	}
}

// TestSecretsAreKept checks that a redacted document restores the resource, in every format and
// order.
func TestSecretsAreKept(t *testing.T) {
	r := registry(t)
	docs, _ := keys(t)
	for name, doc := range docs {
		res := one(t, r, doc)
		shown, err := resource.Shown(res)
		if err != nil {
			t.Fatal(err)
		}
		yaml, err := yamlOf(shown)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{shown, yaml} {
			asked := 0
			got, faults := r.DecodeOver(text, func(k resource.Key) *resource.Resource {
				if asked++; k != res.Key {
					t.Errorf("%s: asked for %s", name, k)
				}
				return res
			})
			if len(faults) > 0 || len(got) != 1 || got[0].Digest != res.Digest || asked != 1 {
				t.Errorf("%s: asked %d times, faults %v from\n%s", name, asked, faults, text)
			}
			for how, decode := range map[string]func() resource.Faults{
				"no agent":     func() resource.Faults { _, f := r.Decode("f.yaml", text); return f },
				"not stored":   func() resource.Faults { _, f := r.DecodeOver(text, none); return f },
				"nothing kept": func() resource.Faults { _, f := r.DecodeOver(text, plain(t, r, res)); return f },
			} {
				faults := decode()
				if len(faults) != 1 || !strings.Contains(faults[0].Reason, "set the secret itself") ||
					!strings.Contains(faults[0].Field, "inline") {
					if !strings.HasSuffix(name, "bytes") || !strings.HasPrefix(name, "key in") || len(faults) == 0 {
						t.Errorf("%s, %s: got %v", name, how, faults)
					}
				}
			}
		}
		if _, faults := r.DecodeShown("", shown); len(faults) > 0 && !strings.HasPrefix(name, "key in") {
			t.Errorf("%s: a shown document is not read: %v", name, faults)
		}
	}
}

func none(resource.Key) *resource.Resource { return nil }

// plain returns the same resource with its keys in files.
func plain(t testing.TB, r *resource.Registry, like *resource.Resource) func(resource.Key) *resource.Resource {
	t.Helper()
	docs := map[string]string{
		"Mesh":                `{type: Mesh, name: m, mtls: {backends: [{name: own, type: provided, conf: {cert: {file: /c}, key: {file: /k}}}]}}`,
		"ExternalService":     `{type: ExternalService, name: e, mesh: m, tags: {kuma.io/service: e}, networking: {address: "e:443", tls: {clientCert: {file: /c}, clientKey: {file: /k}}}}`,
		"MeshExternalService": `{type: MeshExternalService, name: e, mesh: m, spec: {match: {type: HostnameGenerator, port: 443, protocol: tcp}, endpoints: [{address: e, port: 443}]}}`,
	}
	res := one(t, r, docs[like.Kind])
	return func(resource.Key) *resource.Resource { return res }
}

// TestSecretsOfBackends checks that backends retain their keys by name. A renamed or new backend
// has no key to restore.
func TestSecretsOfBackends(t *testing.T) {
	r := registry(t)
	backend := func(name, key string) string {
		return fmt.Sprintf(
			`{"name": %q, "type": "provided", "conf": {"cert": {"inlineString": "c"}, "key": {"inlineString": %q}}}`, name, key)
	}
	mesh := func(backends ...string) string {
		return `{"type": "Mesh", "name": "m", "mtls": {"backends": [` + strings.Join(backends, ", ") + `]}}`
	}
	stored := one(t, r, mesh(backend("a", "secret of a"), backend("b", "secret of b"), backend("c", "secret of c")))
	over := func(doc string) ([]*resource.Resource, resource.Faults) {
		return r.DecodeOver([]byte(doc), func(resource.Key) *resource.Resource { return stored })
	}
	m := secret.Redacted
	for _, c := range []struct{ given, want string }{
		{mesh(backend("a", m), backend("b", m), backend("c", m)),
			mesh(backend("a", "secret of a"), backend("b", "secret of b"), backend("c", "secret of c"))},
		{mesh(backend("c", m), backend("a", m)), mesh(backend("c", "secret of c"), backend("a", "secret of a"))},
		{mesh(backend("new", "key"), backend("b", m)), mesh(backend("new", "key"), backend("b", "secret of b"))},
		{mesh(backend("b", "other"), backend("a", " "+m+"\n")), mesh(backend("b", "other"), backend("a", "secret of a"))},
	} {
		got, faults := over(c.given)
		if len(faults) > 0 || len(got) != 1 || canonical(t, got[0]) != canonical(t, one(t, r, c.want)) {
			t.Errorf("%s: %v, %v", c.given, got, faults)
		}
	}
	for _, given := range []string{
		mesh(backend("d", m)), mesh(backend("a", m), backend("b", m), backend("d", m)), mesh(backend("a", "[redacted 2]")),
		`{"type": "Mesh", "name": "m", "mtls": {"backends": [{"name": "a", "type": "provided", "conf": {"cert": {"inlineString": "[redacted]"}, "key": {"inlineString": "k"}}}]}}`,
		`{"type": "Mesh", "name": "m", "mtls": {"backends": [{"name": "a", "type": "provided", "conf": {"cert": {"inlineString": "c"}, "key": {"inline": "[redacted]"}}}]}}`,
	} {
		if got, faults := over(given); len(faults) != 1 || !strings.Contains(faults[0].String(), "set the secret itself") ||
			!strings.Contains(faults[0].Field, "inline") {
			t.Errorf("%s: %v, %v", given, got, faults)
		}
	}
	// A YAML alias is one value at two positions.
	got, faults := over("type: Mesh\nname: m\nmtls:\n  backends:\n  - {name: a, type: provided, " +
		"conf: &c {cert: {inlineString: c}, key: {inlineString: '[redacted]'}}}\n  - {name: b, type: provided, conf: *c}\n")
	if want := one(t, r, mesh(backend("a", "secret of a"), backend("b", "secret of b"))); len(faults) > 0 ||
		canonical(t, got[0]) != canonical(t, want) {
		t.Errorf("with an alias: %v", faults)
	}
	// A comparison shows which keys changed.
	other := one(t, r, mesh(backend("a", "secret of b"), backend("b", "secret of a"), backend("c", "secret of c")))
	pair, err := resource.ShownPair(stored, other)
	if err != nil || bytes.Equal(pair[0], pair[1]) || bytes.Contains(append(pair[0], pair[1]...), []byte("secret")) {
		t.Errorf("%v\n%s\n%s", err, pair[0], pair[1])
	}
	if pair, err = resource.ShownPair(stored, stored); err != nil || !bytes.Equal(pair[0], pair[1]) {
		t.Errorf("%v\n%s\n%s", err, pair[0], pair[1])
	}
}

// TestFaultsDoNotQuoteKeys checks that faults of keys name only their position.
func TestFaultsDoNotQuoteKeys(t *testing.T) {
	r := registry(t)
	_, key := secrettest.Authority(t, "x")
	var leaks secrettest.Leaks
	leaks.Key(t, "key", key)
	leaks.Text("password", "hunter2-hunter2-hunter2")
	indented := strings.ReplaceAll(strings.TrimSpace(string(key)), "\n", "\n            ")
	flat := strings.ReplaceAll(strings.TrimSpace(string(key)), "\n", `\n`)
	lines := strings.Split(string(key), "\n")
	conf := func(s string) string {
		return "type: Mesh\nname: m\nmtls:\n  backends:\n  - name: own\n    type: provided\n    conf:\n" +
			"      cert: {file: /c}\n" + s
	}
	for name, c := range map[string]struct{ doc, want string }{
		"misspelt": {conf("      keyy:\n        inlineString: |\n            " + indented),
			`unknown field "keyy": it is not known in the schema of Kuma 2.14; did you mean "key"`},
		"misspelt below": {conf("      key:\n        inlineStrin: |\n            " + indented),
			`unknown field "inlineStrin"`},
		"text for a mapping": {conf("      key: |\n            " + indented), "a string is given, a mapping is expected"},
		"not base64":         {conf("      key:\n        inline: |\n            " + indented), "is not base64"},
		"list":               {conf(`      key: {inlineString: ["` + flat + `"]}`), "a list is given, a string is expected"},
		"mapping": {conf(`      key: {inlineString: {"` + flat + `": 1}}`),
			"a mapping is given, a string is expected"},
		"as a field":      {conf(`      key: {"` + flat + `": 1}`), "unknown field"},
		"line as a field": {conf("      key:\n        inlineString: x\n        " + lines[1] + ": x\n"), "unknown field"},
		"twice": {conf("      key:\n        inlineString: |\n            " + indented +
			"\n        inlineString: |\n            " + indented), "duplicate key"},
		"two sources": {conf("      key:\n        file: /x\n        inlineString: |\n            " + indented),
			"2 sources are given"},
		"not indented": {conf("      key:\n        inlineString: |\n" + string(key)), "not valid YAML"},
		"unclosed":     {conf(`      key: {inlineString: "` + flat), "not valid YAML"},
		"wrong place":  {"type: Mesh\nname: \"" + flat + "\"\n", "name"},
		"mode":         {conf("      key: {file: /k}\n    mode: \"" + flat + "\"\n"), "mode"},
		"anchor":       {conf("      key: *" + strings.Trim(lines[1], "=") + "\n"), ""},
		"tag":          {conf("      key: {inlineString: !!x \"" + flat + "\"}\n"), "tag"},
		"NUL":          {conf(`      key: {inlineString: "hunter2-hunter2-hunter2\0"}`), "NUL"},
		"type":         {"type: \"" + flat + "\"\nname: m\n", ""},
		"document":     {string(key), ""},
		"number of a tag": {"type: ExternalService\nname: e\ntags: {kuma.io/service: \"" + flat +
			"\"}\nnetworking: {address: \"" + flat + "\"}\n", "tags"},
		"password": {`{type: ExternalService, name: e, tags: {kuma.io/service: e}, networking: {address: "e:1", tls: {clientKey: hunter2-hunter2-hunter2}}}`,
			"mapping is expected"},
	} {
		_, faults := r.Decode("f.yaml", []byte(c.doc))
		if len(faults) == 0 || !strings.Contains(faults.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, faults, c.want)
		}
		if got := leaks.In([]byte(faults.Error())); got != "" {
			t.Errorf("%s: the fault shows the key: %s", name, got)
		}
	}
}

// yamlOf writes a JSON document as YAML.
func yamlOf(doc []byte) ([]byte, error) { return resource.YAMLOf(doc) }

// FuzzDecodeOver decodes any document over a resource with secrets: the output contains none of
// them.
func FuzzDecodeOver(f *testing.F) {
	r := registry(f)
	const doc = `{"type": "Mesh", "name": "m", "mtls": {"backends": [{"name": "a", "type": "provided", "conf": {"cert": {"inlineString": "c"}, "key": {"inlineString": "5ecre7-of-a"}}},
		{"name": "b", "type": "provided", "conf": {"cert": {"inlineString": "c"}, "key": {"inline": "NWVjcmU3LW9mLWE="}}}]}}`
	stored := one(f, r, doc)
	shown, err := resource.Shown(stored)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shown)
	f.Add([]byte("type: Mesh\nname: m\nmtls: {enabledBackend: '[redacted]', backends: [{name: b, " +
		"conf: {key: {inline: '[redacted]'}}}]}\n"))
	f.Add(
		[]byte(`{"type": "Mesh", "name": "m", "logging": {"backends": [{"name": "[redacted]", "format": "[redacted]"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, faults := r.DecodeOver(data, func(resource.Key) *resource.Resource { return stored })
		out := faults.Error()
		for _, res := range got {
			b, err := resource.Shown(res)
			if err != nil {
				t.Fatal(err)
			}
			out += string(b)
		}
		if strings.Contains(out, "5ecre7") && !bytes.Contains(data, []byte("5ecre7")) ||
			strings.Contains(out, "NWVjcmU3LW9m") && !bytes.Contains(data, []byte("NWVjcmU3")) {
			t.Fatalf("%s\nshows a secret: %s", data, out)
		}
	})
}
