package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestPublishedResources checks that the author and commit of published resources are shown, and
// that writes of them are refused with the directory and its commit.
func TestPublishedResources(t *testing.T) {
	commit := "1a2b3c4d5e6f"
	socket := agenttest.API(t, func(o *httpapi.Options) {
		_, err := o.Store.Apply(store.Batch{Source: store.Source{Kind: store.SourcePublished, Detail: "/srv/mesh"},
			Author: "Ada", Ops: []store.Op{{Put: agenttest.Decoded(t, agenttest.Meshes("shop"))[0]}}})
		agenttest.Do(t, err)
		o.Publication = func(id string) api.Publication {
			return map[string]api.Publication{"/srv/mesh": {Node: "n2", Commit: commit, Author: "Bob"}}[id]
		}
	})
	out, _ := output(t, socket, command.ExitOK, "get", "meshes", "-o", "wide")
	agenttest.Contains(t, out, "AUTHOR             COMMIT", "published:/srv/mesh", "Ada (unverified)", commit)
	out, _ = output(t, socket, command.ExitOK, "get", "dataplanes", "-o", "wide")
	if want := "AUTHOR   LABELS"; !strings.Contains(out, want) {
		t.Errorf("%q is not in\n%s", want, out)
	}
	file := filepath.Join(t.TempDir(), "shop.yaml")
	agenttest.Do(t, os.WriteFile(file, []byte(agenttest.Meshes("shop+")), 0o600))
	for _, args := range [][]string{{"apply", "-f", file}, {"delete", "mesh", "shop"}} {
		_, errs := output(t, socket, command.ExitFailed, args...)
		agenttest.Contains(t, errs, "Mesh/shop", "published:/srv/mesh",
			"change it in the files of the directory /srv/mesh, which is published at commit "+commit)
	}
}
