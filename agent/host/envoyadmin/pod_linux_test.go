package envoyadmin_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestPod checks that the agent reads the drain settings of an Envoy in a pod from its arguments,
// and that other questions have one error. A pod is known by its socket, or by its cgroup if there
// is no admin socket.
func TestPod(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x", "envoy", "--drain-time-s", "30", "--drain-strategy", "immediate")
	in, err := cmd.StdinPipe()
	agenttest.Do(t, err)
	agenttest.Do(t, cmd.Start())
	defer func() { in.Close(); _ = cmd.Wait() }()
	peer := access.Peer{Local: true, UID: uint32(os.Geteuid()), PID: int32(cmd.Process.Pid)}
	csi, hostPath := peer, peer
	csi.Pod = &access.Pod{UID: "u", Namespace: "shop", Name: "web-0"}
	hostPath.Cgroup = "/kubepods/besteffort/podu/c"
	for _, peer := range []access.Peer{csi, hostPath} {
		e := envoyadmin.Envoy{Dir: t.TempDir(), ID: "default.web-0.shop", Peer: peer}
		if _, err := e.Counts(t.Context()); !errors.Is(err, access.ErrPodAdmin) {
			t.Errorf("%s: %v", peer, err)
		}
		want := api.DrainSettings{Time: 30 * time.Second, Strategy: api.Immediate, ParentShutdown: 900 * time.Second}
		if got, err := e.DrainSettings(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", peer, got, err)
		}
	}
	csi.PID = 0 // without hostPID
	if _, err := (envoyadmin.Envoy{Peer: csi}).DrainSettings(t.Context()); !errors.Is(err, access.ErrPodAdmin) {
		t.Error(err)
	}
	if _, err := (envoyadmin.Envoy{Dir: t.TempDir(), ID: "default.web", Peer: peer}).Counts(t.Context()); err == nil ||
		errors.Is(err, access.ErrPodAdmin) {
		t.Errorf("outside of pods: %v", err)
	}
}

// TestDrainFlags checks both forms of flags, their defaults, and that others are errors.
func TestDrainFlags(t *testing.T) {
	got, err := envoyadmin.DrainFlags([]string{"envoy", "--drain-time-s=5", "--parent-shutdown-time-s", "7",
		"--drain-strategy=immediate"})
	want := api.DrainSettings{Time: 5 * time.Second, Strategy: api.Immediate, ParentShutdown: 7 * time.Second}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := envoyadmin.DrainFlags([]string{"envoy", ""}); err != nil || got != api.DefaultDrain {
		t.Errorf("%+v, %v", got, err)
	}
	for _, flag := range []string{"--drain-time-s", "--drain-time-s=-1", "--drain-time-s=1s", "--drain-strategy=slow",
		"--parent-shutdown-time-s=99999999999999999999"} {
		if got, err := envoyadmin.DrainFlags([]string{"envoy", flag}); err == nil ||
			!strings.Contains(err.Error(), strings.Split(flag, "=")[0]) {
			t.Errorf("%s: %+v, %v", flag, got, err)
		}
	}
}

// FuzzDrainFlags checks that arguments never lead to a panic or to times that are out of bounds.
func FuzzDrainFlags(f *testing.F) {
	f.Add("envoy\x00--drain-time-s\x0030\x00--drain-strategy=immediate\x00")
	f.Fuzz(func(t *testing.T, args string) {
		got, err := envoyadmin.DrainFlags(strings.Split(args, "\x00"))
		known := got.Strategy == api.Gradual || got.Strategy == api.Immediate
		if err == nil && (got.Time < 0 || got.ParentShutdown < 0 || !known) {
			t.Errorf("%+v", got)
		}
	})
}
