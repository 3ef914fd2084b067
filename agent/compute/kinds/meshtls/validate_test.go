package meshtls_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func document(top, conf string) []byte {
	return []byte(`{"type":"MeshTLS","mesh":"default","name":"t","spec":{` + top +
		`"from":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`)
}

const onMesh = `"targetRef":{"kind":"Mesh"},`

func TestValid(t *testing.T) {
	r := kinds.Registry()
	for _, c := range []struct{ top, conf string }{
		{onMesh, `{}`},
		{"", `{"tlsVersion":{"min":"TLS12"}}`},
		{onMesh, `{"tlsVersion":{"min":"TLS12","max":"TLS12"}}`},
		{onMesh, `{"tlsVersion":{"min":"TLS13","max":"TLSAuto"}}`},
		{onMesh, `{"tlsVersion":{"min":"TLSAuto","max":"TLS10"},"tlsCiphers":["ECDHE-RSA-AES256-GCM-SHA384","ECDHE-ECDSA-AES256-GCM-SHA384"],"mode":"Strict"}`},
		{`"targetRef":{"kind":"MeshSubset","tags":{"a":"b"}},`, `{"mode":"Permissive"}`},
		{`"targetRef":{"kind":"Dataplane","name":"d","sectionName":"http"},`, `{"mode":"Strict"}`},
	} {
		res, faults := r.Decode("", document(c.top, c.conf))
		if len(faults) > 0 {
			t.Errorf("%s: %v", c.conf, faults)
			continue
		}
		if out, err := resource.Marshal(res[0]); err != nil || string(out) != string(document(c.top, c.conf)) {
			t.Errorf("%s is encoded as %s (%v)", c.conf, out, err)
		}
	}
}

func TestInvalid(t *testing.T) {
	r := kinds.Registry()
	for _, c := range []struct{ top, conf, field, reason string }{
		{onMesh, `{"mode":"strict"}`, "mode", "Strict, Permissive"},
		{onMesh, `{"tlsVersion":{"min":"TLS15"}}`, "tlsVersion.min", "TLSAuto, TLS10, TLS11, TLS12, TLS13"},
		{onMesh, `{"tlsVersion":{"max":"1.3"}}`, "tlsVersion.max", "TLSAuto, TLS10, TLS11, TLS12, TLS13"},
		{onMesh, `{"tlsVersion":{"min":"TLS13","max":"TLS12"}}`, "tlsVersion.min", "TLS13 is newer than the maximum, TLS12"},
		{onMesh, `{"tlsCiphers":["RC4"]}`, "tlsCiphers[0]", "ECDHE-RSA-CHACHA20-POLY1305"},
		{onMesh, `{"tlsCiphers":["ECDHE-RSA-AES256-GCM-SHA384","ECDHE-RSA-AES256-GCM-SHA384"]}`, "tlsCiphers[1]", "twice"},
		{`"targetRef":{"kind":"MeshSubset"},`, `{"tlsVersion":{"min":"TLS12"}}`,
			"tlsVersion", "requires a targetRef of kind Mesh"},
		{`"targetRef":{"kind":"Dataplane","name":"d"},`, `{"tlsCiphers":["ECDHE-RSA-AES256-GCM-SHA384"]}`,
			"tlsCiphers", "requires a targetRef of kind Mesh"},
	} {
		doc := document(c.top, c.conf)
		if !json.Valid(doc) {
			t.Fatalf("not JSON: %s", doc)
		}
		_, faults := r.Decode("", doc)
		if len(faults) != 1 || faults[0].Field != "spec.from[0].default."+c.field ||
			!strings.Contains(faults[0].Reason, c.reason) {
			t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, c.field, c.reason, faults)
		}
	}
	_, faults := r.Decode("", []byte(`{"type":"MeshTLS","mesh":"default","name":"t","spec":{"targetRef":{"kind":"MeshService","name":"s"},"from":[{"targetRef":{"kind":"Mesh"},"default":{}}]}}`))
	if len(faults) != 1 || faults[0].Field != "spec.targetRef.kind" {
		t.Errorf("on a MeshService: %v", faults)
	}
}
