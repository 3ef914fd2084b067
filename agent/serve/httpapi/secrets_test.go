package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// providedMesh is a mesh whose authority is given in the document.
func providedMesh(cert, key []byte, more string) string {
	c, _ := json.Marshal(string(cert))
	k, _ := json.Marshal(string(key))
	return fmt.Sprintf(`{"type":"Mesh","name":"default",%s"mtls":{"backends":[{"name":"own","type":"provided","conf":{"cert":{"inlineString":%s},"key":{"inlineString":%s}}}],"enabledBackend":"own"}}`,
		more, c, k)
}

// TestSecretsOfTheAPI checks that no response shows a key, and that a document that was read keeps
// its key when it is written back.
func TestSecretsOfTheAPI(t *testing.T) {
	a := start(t)
	a.reconcile()
	var leaks secrettest.Leaks
	cert, key := secrettest.Authority(t, "one")
	otherCert, otherKey := secrettest.Authority(t, "two")
	leaks.Key(t, "first", key)
	leaks.Key(t, "second", otherKey)
	do := func(method, path, body string, headers ...string) answer {
		t.Helper()
		got := a.do(method, path, body, headers...)
		if at := leaks.In([]byte(got.body)); at != "" {
			t.Errorf("%s shows a key: %s", got.request, at)
		}
		return got
	}
	held := func() string {
		rec, _ := a.store.Snapshot().Get(resource.Key{Kind: "Mesh", Name: "default"})
		return rec.Spec.(*resource.Mesh).MTLS.Backends[0].Conf.Key.InlineString.Reveal()
	}
	const path = "/meshes/default"
	a.want(do("PUT", path, providedMesh(cert, key, "")), 201)
	first := do("GET", path, "")
	a.want(first, 200, `"key":{"inlineString":"[redacted]"}`, "BEGIN CERTIFICATE")
	for _, p := range []string{"/meshes", "/meshes?meta=true", path + "?meta=true", "/v1/history/meshes/default"} {
		a.want(do("GET", p, ""), 200, "[redacted]")
	}

	// Written back it is the same resource, and its ETag holds.
	tag := first.header.Get("ETag")
	a.want(do("PUT", path, first.body, "If-Match: "+tag), 200, `"action":"unchanged"`)
	if repeated := do("GET", path, "").header.Get("ETag"); repeated != tag {
		t.Errorf("the ETag is %s, not %s", repeated, tag)
	}
	a.want(do("PUT", path, strings.Replace(first.body, `"type":"Mesh"`, `"type":"Mesh","routing":{"zoneEgress":true}`, 1),
		"If-Match: "+tag), 200, `"action":"changed"`)
	a.want(do("GET", path, ""), 200, `"zoneEgress":true`)
	if held() != string(key) {
		t.Error("the key is lost")
	}
	a.want(do("PUT", path, first.body, "If-Match: "+tag), 412)
	a.want(do("POST", "/v1/apply", first.body), 200, `"action":"changed"`)
	a.want(do("POST", "/v1/apply?dryRun=true", first.body), 200, `"action":"unchanged"`)
	a.want(do("POST", "/v1/diff", first.body), 200, `"action":"unchanged"`)

	// A certificate may be changed beside the key, where it is that of the key.
	cut, _ := json.Marshal(string(cert))
	wrong, _ := json.Marshal(string(otherCert))
	a.want(do("PUT", path, strings.Replace(first.body, string(cut), string(wrong), 1)), 400, "mtls.backends[0].conf.cert",
		"the certificate does not match the stored key")

	// Another key is a change that is seen and not shown.
	second := providedMesh(otherCert, otherKey, "")
	a.want(do("POST", "/v1/diff", second), 200, `"path":"mtls.backends[own].conf"`,
		`"key":{"inlineString":"[redacted 1]"}`, `"key":{"inlineString":"[redacted 2]"}`)
	a.want(do("PUT", path+"?dryRun=true", second), 200, `"[redacted 2]"`)
	a.want(do("PUT", path, second), 200, `"action":"changed"`)
	a.want(do("GET", "/v1/history/meshes/default", ""), 200, `"[redacted 1]"`, `"[redacted 2]"`)
	rec := a.store.History(resource.Key{Kind: "Mesh", Name: "default"})
	a.want(do("POST", "/v1/rollback", fmt.Sprintf(`{"type":"Mesh","name":"default","revision":%d}`, rec[0].Revision)), 200,
		`"action":"changed"`)
	if held() != string(key) {
		t.Error("a rollback does not restore the key")
	}

	// Where nothing is stored, a mark is an error with a remedy; the mark of a comparison always is.
	for _, body := range []string{strings.ReplaceAll(first.body, `"own"`, `"new"`),
		strings.ReplaceAll(first.body, "[redacted]", "[redacted 1]"),
		strings.ReplaceAll(first.body, `"inlineString":"[redacted]"`, `"inline":"[redacted]"`)} {
		a.want(do("PUT", path, body), 400, "mtls.backends[0].conf.key.inline", "set the secret itself, or file")
	}
	a.want(do("PUT", "/meshes/other", strings.ReplaceAll(first.body, `"name":"default"`, `"name":"other"`)), 400,
		"set the secret itself")
	a.want(do("POST", "/v1/apply", strings.ReplaceAll(first.body, `"name":"default"`, `"name":"other"`)), 400,
		"set the secret itself")

	// A key with a fault.
	broken := strings.Replace(providedMesh(cert, key, ""), `"key":`, `"keyy":`, 1)
	a.want(do("PUT", path, broken), 400, "keyy", "key")
	a.want(do("PUT", path, strings.Replace(providedMesh(cert, key, ""), `"key":{"inlineString":`, `"key":{"inline":`, 1)),
		400, "base64")

	// The ETag of a resource with secrets does not depend on them.
	tags := map[string]bool{}
	for _, k := range [][]byte{key, otherKey} {
		b := start(t)
		b.put(store.Source{Kind: store.SourceAPI}, providedMesh(cert, k, ""))
		tags[b.do("GET", path, "").header.Get("ETag")] = true
	}
	if len(tags) != 1 {
		t.Errorf("the ETag tells one key from another: %v", tags)
	}
}

// TestKeptSecretsOfAnotherRevision: a secret that changes while it is kept is not put back to what
// it was.
func TestKeptSecretsOfAnotherRevision(t *testing.T) {
	a := start(t)
	a.reconcile()
	cert, key := secrettest.Authority(t, "one")
	otherCert, otherKey := secrettest.Authority(t, "two")
	a.want(a.do("PUT", "/meshes/default", providedMesh(cert, key, "")), 201)
	shown := a.do("GET", "/meshes/default", "").body
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c, k := cert, key
			if i%2 == 0 {
				c, k = otherCert, otherKey
			}
			a.do("PUT", "/meshes/default", providedMesh(c, k, ""))
		}
	}()
	for range 50 {
		// It succeeds with the key that was stored then, or says that it was changed, or that the
		// certificate is another one's.
		if got := a.do("PUT", "/meshes/default", shown); got.status != 200 && got.status != 409 && got.status != 400 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	close(stop)
	<-done
	for _, rev := range a.store.History(resource.Key{Kind: "Mesh", Name: "default"}) {
		c := rev.Resource.Spec.(*resource.Mesh).MTLS.Backends[0].Conf
		if (c.Cert.InlineString == string(cert)) != (c.Key.InlineString.Reveal() == string(key)) {
			t.Fatalf("revision %d has the certificate of one key and the other key", rev.Revision)
		}
	}
}
