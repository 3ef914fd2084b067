package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// registerPods registers pods as the CSI driver does, in a run directory, and returns the
// directories of the pods.
func registerPods(t *testing.T, run string, uids map[string]string) map[string]string {
	t.Helper()
	root := filepath.Join(run, "pods")
	agenttest.Do(t, os.MkdirAll(run, 0o755), os.Mkdir(root, 0o750), os.Chmod(root, 0o750))
	out := map[string]string{}
	for uid, name := range uids {
		namespace, name, _ := strings.Cut(name, "/")
		out[uid] = filepath.Join(root, uid)
		agenttest.Do(t, os.Mkdir(out[uid], 0o755), os.Chmod(out[uid], 0o755), os.WriteFile(out[uid]+".json",
			fmt.Appendf(nil, `{"uid":%q,"namespace":%q,"name":%q,"serviceAccount":"default"}`, uid, namespace, name), 0o644))
	}
	return out
}

// TestPodsAreTheirOwnProxies checks what peers on the sockets of pods get from an agent, although
// their user is root.
func TestPodsAreTheirOwnProxies(t *testing.T) {
	dir := openDir(t)
	at := registerPods(t, filepath.Join(dir, "run"),
		map[string]string{"u-a": "shop/web-0", "u-b": "shop/api-0", "u-c": "blog/web-0", "u-e": "shop/own-0"})
	agenttest.Do(t, os.WriteFile(filepath.Join(dir, "run/pods/u-d.json"), []byte("{}"), 0o644))
	r := agenttest.Up(t, dir, agent.Deps{}, "xds.pods=pods",
		`xds.access=[{user: "0", nodes: ["*"]}, {pod: "shop/*", nodes: ["default.*"]}]`)
	pinned := func(name, uid string) string {
		return broughtBy(name, "web", `,"labels":{"nearside.io/pod":"`+uid+`"}`)
	}
	agenttest.ByAPI(t, r.Store(), secureMesh("ca")+securePair("")+"---\n"+pinned("web-0.shop", "u-a")+"\n---\n"+
		pinned("api-0.shop", "u-0")+"\n---\n"+pinned("web-0.blog", "u-c")+"\n---\n"+
		broughtBy("payments", "payments", "")+"\n")
	try := func(uid, id string, dataplane string) agenttest.Outcome {
		return agenttest.Act{Do: "xds", NodeID: id, Secret: ownSecret, Dataplane: dataplane,
			Socket: filepath.Join(at[uid], "xds.sock")}.Try()
	}
	for _, c := range []struct{ uid, id, dataplane, want, detail string }{
		{"u-a", "default.web-0.shop", "", "served key", ""},
		{"u-a", "default.payments", "", "PermissionDenied",
			`pod shop/web-0 (pid ` + fmt.Sprint(os.Getpid()) + `) may not use the node id "default.payments": a pod may`},
		{"u-a", "default.api-0.shop", "", "PermissionDenied", "MESH.web-0.shop"},
		{"u-e", "default.own-0.shop", broughtBy("own-0.shop", "payments", ""), "PermissionDenied",
			"without a Dataplane in the node metadata"},
		{"u-b", "default.api-0.shop", "", "PermissionDenied", "nearside.io/pod: u-0, but the pod of this peer is u-b"},
		{"u-c", "default.web-0.blog", "", "PermissionDenied", `add one with pod: "blog/web-0"`},
	} {
		got := try(c.uid, c.id, c.dataplane)
		if got.Got != c.want || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s as %s: %s (%s); want %s (%s)", c.uid, c.id, got.Got, got.Detail, c.want, c.detail)
		}
		agenttest.Gone(t, r, c.id)
	}
	for id, want := range map[string]codes.Code{
		"default.web-0.shop": codes.FailedPrecondition, // it may, but its Envoy has no stream now
		"default.web-0.blog": codes.PermissionDenied,
	} {
		_, err := client.OwnDrain(t.Context(), &bootstrap.File{Node: &core.Node{Id: id},
			XDSSocket: filepath.Join(at["u-a"], "xds.sock")}, api.DrainRequest{Timeout: "1s"})
		if status.Code(err) != want {
			t.Errorf("pod shop/web-0 drains %s: %v; want %v", id, err, want)
		}
	}
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	users := map[string]bool{}
	for _, x := range s.Refused.Streams {
		users[x.User] = true
	}
	if !users["pod shop/api-0"] || !users["pod blog/web-0"] {
		t.Errorf("refused clients %v; want the pods", users)
	}
	for _, c := range s.Checks {
		const want = `u-d.json: uid: "" is not the name of the file`
		if c.Name == "pods" && (!c.Degraded || !strings.Contains(c.Reason, want)) {
			t.Errorf("check of pods: %+v", c)
		}
	}
}
