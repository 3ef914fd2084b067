package proxypatch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// TestSecretFields compares the list of secret fields with the fields that Envoy's API marks as
// sensitive.
func TestSecretFields(t *testing.T) {
	mark, err := protoregistry.GlobalTypes.FindExtensionByName("udpa.annotations.sensitive")
	if err != nil {
		t.Fatal(err)
	}
	marked := 0
	var walk func(list protoreflect.MessageDescriptors)
	walk = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			fields := list.Get(i).Fields()
			for j := range fields.Len() {
				fd := fields.Get(j)
				if is, ok := proto.GetExtension(fd.Options(), mark).(bool); !ok || !is {
					continue
				}
				marked++
				// The config of a private key provider has a common field name; its parent is
				// hidden instead.
				name := string(fd.Name())
				if fd.FullName() == "envoy.extensions.transport_sockets.tls.v3.PrivateKeyProvider.typed_config" {
					name = "private_key_provider"
				}
				if !secret.Field(name) || !secret.Field(fd.JSONName()) && name == string(fd.Name()) {
					t.Errorf("%s is a secret field of Envoy's API: add it to the list", fd.FullName())
				}
			}
			walk(list.Get(i).Messages())
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool { walk(f.Messages()); return true })
	if marked < 20 {
		t.Errorf("only %d fields are marked: are the extensions linked?", marked)
	}
}

func registry(t testing.TB) *resource.Registry {
	t.Helper()
	p := proxypatch.Plugin(legacy.Kind())
	r, err := resource.NewRegistry(slices.Concat(resource.Core(), p.Kinds,
		[]resource.Descriptor{p.Legacy[0].Descriptor})...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	password = "5ecre7-and-n07-random"
	// tls is part of a cluster, in YAML with a comment that also contains a secret.
	tls = `transport_socket:
  name: envoy.transport_sockets.tls
  typed_config: # was: 5ecre7-and-n07-random-before
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    sni: NAME
    common_tls_context:
      tls_certificates:
      - certificate_chain: {filename: /etc/cert.pem}
        private_key: {inline_string: 5ecre7-and-n07-random}
      - certificate_chain: {filename: /etc/other.pem}
        private_key: {filename: /etc/key.pem}
        password: {inline_bytes: NWVjcmU3LWFuZC1uMDctcmFuZG9t}
`
)

// patchOf returns a policy with modifications.
func patchOf(modifications ...string) string {
	return `{"type": "MeshProxyPatch", "mesh": "m", "name": "p", "spec": {"targetRef": {"kind": "Mesh"}, "default": {"appendModifications": [` +
		strings.Join(modifications, ", ") + `]}}}`
}

func clusterPatch(match, text string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf(`{"cluster": {"operation": "Patch", "match": {"name": %q}, "value": %s}}`, match, quoted)
}

func jsonPatch(path, value string) string {
	return fmt.Sprintf(`{"networkFilter": {"operation": "Patch", "match": {"name": "x.y"}, "jsonPatches": [{"op": "add", "path": %q, "value": %s}]}}`, path, value)
}

func decodeOne(t *testing.T, r *resource.Registry, doc string) *resource.Resource {
	t.Helper()
	res, err := r.DecodeOne([]byte(doc))
	if err != nil {
		t.Fatalf("%s\n%v", doc, err)
	}
	return res
}

func secretTemplate() string {
	quoted, _ := json.Marshal("'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n" +
		"connect_timeout: 1s\n" + tls)
	return `{"type": "ProxyTemplate", "mesh": "m", "name": "p", "selectors": [{"match": {"kuma.io/service": "*"}}], "conf": {"imports": ["default-proxy"], "resources": [{"name": "c", "version": "1", "resource": ` +
		string(quoted) + `}]}}`
}

// TestSecretsOfPatches checks that secrets in a patch are hidden, and preserved if the displayed
// document is stored again.
func TestSecretsOfPatches(t *testing.T) {
	r := registry(t)
	plain := clusterPatch("z", "# a comment stays\nconnect_timeout: 5s\n")
	for name, doc := range map[string]string{
		"text":     patchOf(plain, clusterPatch("a", tls)),
		"template": secretTemplate(),
		"value": patchOf(jsonPatch("/a/tlsCertificates/0",
			`{"privateKey": {"inlineString": "`+password+`"}, "certificateChain": {"filename": "/c"}}`)),
		"path":   patchOf(jsonPatch("/a/private_key", `{"inlineString": "`+password+`"}`)),
		"scalar": patchOf(jsonPatch("/a/password/inlineString", `"`+password+`"`)),
	} {
		res := decodeOne(t, r, doc)
		shown, err := resource.Shown(res)
		if err != nil || !strings.Contains(string(shown), secret.Redacted) {
			t.Fatalf("%s: %v\n%s", name, err, shown)
		}
		for _, text := range []string{string(shown), fmt.Sprintf("%+v %#v", res, res.Spec), fmt.Sprintf("%+v", *res)} {
			if strings.Contains(text, "5ecre7") || strings.Contains(text, "NWVjcmU3") {
				t.Errorf("%s: the secret is shown: %s", name, text)
			}
		}
		if name == "text" && !strings.Contains(string(shown), "a comment stays") {
			t.Errorf("a text without secrets was modified: %s", shown)
		}
		if strings.Contains(name, "te") && !strings.Contains(string(shown), "/etc/key.pem") {
			t.Errorf("%s: the file name of a secret is hidden: %s", name, shown)
		}
		stored, faults := r.DecodeOver(shown, func(resource.Key) *resource.Resource { return res })
		if len(faults) > 0 || stored[0].Digest != res.Digest {
			t.Errorf("%s: storing the displayed document failed: %v", name, faults)
		}
		if _, faults := r.Decode("", shown); len(faults) != 1 ||
			!strings.Contains(faults[0].Reason, "set the secret itself") {
			t.Errorf("%s: without the stored document: %v", name, faults)
		}
	}
}

// TestChangesBesideSecrets checks that other fields of a text can be changed and moved while its
// secrets are preserved, and that new fields have no secrets.
func TestChangesBesideSecrets(t *testing.T) {
	r := registry(t)
	text := func(name string) string { return strings.ReplaceAll(tls, "NAME", name) }
	stored := decodeOne(t, r, patchOf(clusterPatch("a", "name: a\n"+text("a.example")),
		clusterPatch("b", "name: b\n"+strings.ReplaceAll(text("b.example"), "5ecre7", "5ecre8"))))
	shown, err := resource.Shown(stored)
	if err != nil {
		t.Fatal(err)
	}
	over := func(doc string) ([]*resource.Resource, resource.Faults) {
		return r.DecodeOver([]byte(doc), func(resource.Key) *resource.Resource { return stored })
	}
	res, faults := over(strings.ReplaceAll(string(shown), "b.example", "c.example"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	b, _ := resource.Marshal(res[0])
	if s := string(b); !strings.Contains(s, "c.example") || !strings.Contains(s, "5ecre8-and") ||
		!strings.Contains(s, "5ecre7-and") || strings.Contains(s, secret.Redacted) {
		t.Errorf("%s", s)
	}
	for name, doc := range map[string]string{
		"another name":      strings.ReplaceAll(string(shown), `\"b\"`, `\"d\"`),
		"key in camel case": strings.ReplaceAll(string(shown), "common_tls_context", "commonTlsContext"),
		"no modifcation":    patchOf(jsonPatch("/a/password/inlineString", `"`+secret.Redacted+`"`)),
	} {
		if doc == string(shown) {
			t.Fatalf("%s: the change has no effect", name)
		}
		if _, faults := over(doc); len(faults) == 0 || !strings.Contains(faults.Error(), "set the secret itself") {
			t.Errorf("%s: %v", name, faults)
		}
	}
	// A marker is resolved by its path: at another path the secret would be shown.
	stored = decodeOne(t, r, patchOf(jsonPatch("/a/password", `{"inlineString": "`+password+`"}`)))
	got, faults := over(patchOf(jsonPatch("/a/note", `{"inlineString": "`+secret.Redacted+`"}`)))
	if len(faults) == 0 {
		if b, _ := resource.Marshal(got[0]); strings.Contains(string(b), password) {
			t.Errorf("a secret was moved to a field that is shown: %s", b)
		}
	}
}

// TestFaultsOfSecretsDoNotQuote checks that messages do not contain invalid values of secret
// fields.
func TestFaultsOfSecretsDoNotQuote(t *testing.T) {
	r := registry(t)
	for name, doc := range map[string]string{
		"bytes": patchOf(clusterPatch("a", strings.ReplaceAll(tls, "NWVjcmU3LWFuZC1uMDctcmFuZG9t", "5ecre7 is no base64"))),
		"type": patchOf(clusterPatch("a",
			strings.ReplaceAll(tls, "{inline_string: 5ecre7-and-n07-random}", "5ecre7-and-n07-random"))),
		"unknown": patchOf(clusterPatch("a",
			strings.ReplaceAll(tls, "inline_string: 5ecre7-and-n07-random", "inline_text: 5ecre7-and-n07-random"))),
		"list": patchOf(clusterPatch("a",
			strings.ReplaceAll(tls, "{inline_string: 5ecre7-and-n07-random}", "[5ecre7-and-n07-random]"))),
		"patch":   patchOf(`{"networkFilter": {"operation": "Patch", "match": {"name": "envoy.filters.network.http_connection_manager"}, "jsonPatches": [{"op": "add", "path": "/statPrefix", "value": {"password": "5ecre7"}}]}}`),
		"cluster": patchOf(`{"cluster": {"operation": "Patch", "jsonPatches": [{"op": "add", "path": "/transportSocket/typedConfig", "value": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.GenericSecret", "secret": "5ecre7"}}]}}`),
	} {
		_, faults := r.Decode("", []byte(doc))
		if len(faults) == 0 {
			t.Errorf("%s: no fault", name)
		}
		if strings.Contains(faults.Error(), "5ecre7") {
			t.Errorf("%s: %v", name, faults)
		}
	}
}
