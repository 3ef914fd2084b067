package httpapi_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// TestSignedAccess checks that the caller needs permission for records that others have signed.
func TestSignedAccess(t *testing.T) {
	a := startTCP(t, onDisk(t, filepath.Join(t.TempDir(), "db")), func(o *httpapi.Options) {
		o.Access.Verify = subjects
		o.Access.Roles = rolesOf(t, access.RoleOptions{GID: -1, Roles: append([]access.Role{
			{Name: "agents", Subjects: []access.Matcher{{Token: "root"}}, Allow: []access.Allow{
				{Kinds: []string{access.KindAgent}, Verbs: []string{"update"}}}},
		}, testRoles...)})
	})
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc)
	key, p := keyOf("alice"), putOf(t, timeout("5s"))
	version := func() *engine.Record { return sealed(t, a.draft(p.Key), p, key, here) }
	versions := `{"items":[{"type":"MeshTimeout","mesh":"default","name":"t1"}]}`
	for _, who := range []string{"viewer", "obs", "team", "other"} {
		a.want(a.post([]string{as(who)}, version()), 403)
	}
	a.want(a.do("POST", "/v1/versions", versions, as("other")), 403)
	a.want(a.do("POST", "/v1/versions", versions, as("viewer")), 200, `"hlc"`)
	a.want(a.post([]string{as("maker")}, version()), 200, `"created"`)
	a.want(a.post([]string{as("maker")}, version()), 403)
	tomb := sealed(t, a.draft(p.Key), engine.Put{Key: p.Key, Delete: true}, key, here)
	a.want(a.post([]string{as("maker")}, tomb), 403)
	if _, ok := a.store.Snapshot().Get(resource.Key(p.Key)); !ok {
		t.Error("a caller without permission has deleted a resource with the tombstone of another signer")
	}
	file := engine.Put{Key: engine.Key{Kind: store.KindTrustFile, Name: "trust"}, Body: []byte("x")}
	for _, who := range []string{"maker", "viewer", "team"} {
		a.want(a.post([]string{as(who)}, sealed(t, a.draft(file.Key), file, key, here)), 403, access.KindAgent)
	}
	a.want(a.post([]string{as("root")}, sealed(t, a.draft(file.Key), file, key, here)), 200, `"created"`)
	a.want(a.post([]string{as("root")}, version()), 403)
	a.want(a.post([]string{as("ops")}, tomb), 200, `"deleted"`)
}

// TestSignedKilled copies the state file when the answer of a signed write arrives, and reads the
// copy like an agent that starts after kill -9.
func TestSignedKilled(t *testing.T) {
	dir := t.TempDir()
	a := start(t, onDisk(t, filepath.Join(dir, "db")))
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	key, p := keyOf("alice"), putOf(t, timeout("5s"))
	if _, err := a.client().WriteSigned(t.Context(), key, p); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "killed"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, onDisk(t, filepath.Join(dir, "killed")))
	v := b.store.Version(resource.Key(p.Key))
	rec, _ := b.store.Snapshot().Get(resource.Key(p.Key))
	if want := sign.Fingerprint(key.Public()); v == nil || v.Signer() != want || rec.Signer != want ||
		rec.Author != "alice" {
		t.Errorf("after the kill: version %+v, record %+v", v, rec)
	}
	b.want(b.do("GET", "/v1/history/meshtimeouts/default/t1", ""), 200, `"author":"alice"`)
}

// TestSignedAudit checks that the event of a signed write names the caller and the signer, and the
// resource but not the encoded record.
func TestSignedAudit(t *testing.T) {
	x := &auditor{profile: audit.ProfileAllRequests}
	a := startSigned(t, func(o *httpapi.Options) {
		o.Audit = x
		o.Authors = func() func(string, sign.ID) api.Author {
			return func(name string, signer sign.ID) api.Author {
				return api.Author{Name: name, Key: "ops-key", Verified: signer != (sign.ID{})}
			}
		}
	})
	v := sealed(t, a.draft(putOf(t, timeout("5s")).Key), putOf(t, timeout("5s")), keyOf("alice"), here)
	a.want(a.post(nil, v), 200)
	x.await(t, 2)
	text := x.text()
	for _, want := range []string{`"nearside.io/signed-by":"alice (key ops-key)"`,
		"created MeshTimeout/default/t1@2", `"connectionTimeout":"5s"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Contains(text, base64.StdEncoding.EncodeToString(v.Encoded())) {
		t.Errorf("the event contains the encoded record: %s", text)
	}
	a.want(a.do("GET", "/meshes/default/meshtimeouts/t1?meta=true", ""), 200,
		`"signedBy":{"name":"alice","key":"ops-key","verified":true}`)
}
