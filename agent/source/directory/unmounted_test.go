package directory_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/kubernetes"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// byMount mounts a directory over b, and returns how to do that again. It needs root.
func byMount(t *testing.T, w *watched) func() {
	t.Helper()
	agenttest.Do(t, os.MkdirAll(w.path("mounted"), 0o755))
	mount := func() { agenttest.Do(t, unix.Mount(w.path("mounted"), w.path("b"), "", unix.MS_BIND, "")) }
	if err := unix.Mount(w.path("mounted"), w.path("b"), "", unix.MS_BIND, ""); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.path("b"), unix.MNT_DETACH) })
	return mount
}

// TestUnmounted checks that a directory of the watcher that becomes empty and loses its marker
// keeps its resources, and that one that keeps its marker loses them.
func TestUnmounted(t *testing.T) {
	for name, mounts := range map[string]bool{"mount": true, "rename": false} {
		t.Run(name, func(t *testing.T) {
			w := watchDirs(t, twoDirs(t), agenttest.Memory(t), "")
			leave := func() { agenttest.Do(t, os.Rename(w.path("b"), w.path("c")), os.Mkdir(w.path("b"), 0o755)) }
			enter := func() { agenttest.Do(t, os.Remove(w.path("b")), os.Rename(w.path("c"), w.path("b"))) }
			if mounts {
				enter = byMount(t, w)
				leave = func() { agenttest.Do(t, unix.Unmount(w.path("b"), unix.MNT_DETACH)) }
			}
			w.source.Rescan()
			w.write("b/"+kubernetes.Marker, "")
			w.write("b/y.yaml", agenttest.Meshes("y"))
			w.source.Rescan() // a mount causes no event
			w.Want("y@y.yaml")
			leave()
			w.source.Rescan()
			w.faulty("b", "has no marker of the watcher of Kubernetes", "its loaded resources stay in force")
			w.write("a/x.yaml", agenttest.Meshes("x"))
			w.Want("x@x.yaml y@y.yaml")
			w.source.CatchUp(t.Context()) // does not wait for the directory
			enter()
			w.source.Rescan()
			w.status("b/y.yaml", "is active", func(f api.FileStatus) bool { return len(w.source.Files()) == 2 })
			agenttest.Do(t, os.Remove(w.path("b/y.yaml")))
			w.source.Rescan()
			w.Want("x@x.yaml")
		})
	}
}

// TestUnmountedAtStart checks that an agent that starts while a directory of the watcher is not
// mounted keeps its resources, because the role says whose directory it is.
func TestUnmountedAtStart(t *testing.T) {
	dir, s := twoDirs(t), agenttest.Memory(t)
	pods := func(s *store.Store) int { return len(s.Snapshot().Set().Kind("Dataplane")) }
	w := watchDirs(t, dir, s, access.TemplateKubernetes)
	changed, stop := s.Watch()
	w.write("b/pod.yaml", "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: pod, namespace: shop}, spec: "+
		"{networking: {address: 10.0.0.9, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}}}\n")
	agenttest.Await(t, "the pod is there", changed, func() bool { return pods(s) == 1 })
	stop()
	w.stop()
	agenttest.Do(t, os.Rename(w.path("b"), w.path("c")), os.Mkdir(w.path("b"), 0o755))
	w = watchDirs(t, dir, s, access.TemplateKubernetes)
	w.faulty("b", "has no marker")
	if n := pods(s); n != 1 {
		t.Errorf("%d Dataplanes", n)
	}
	changed, stop = s.Watch()
	defer stop()
	w.write("b/"+kubernetes.Marker, "") // the watcher says that there are no pods
	w.source.Rescan()                   // as polls do: the marker causes no scan
	agenttest.Await(t, "the pod is gone", changed, func() bool { return pods(s) == 0 })
}
