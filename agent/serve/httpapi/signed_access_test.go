package httpapi_test

import (
	"path/filepath"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestSignedAccess checks that the permissions of the caller apply, whoever has signed the records.
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
