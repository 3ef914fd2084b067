package csi_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc/codes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/csi"
)

func TestRegistration(t *testing.T) {
	h := newHost(t).start()
	ctx := t.Context()
	info, err := h.registration.GetInfo(ctx, &registration.InfoRequest{})
	h.must(err)
	if info.GetType() != "CSIPlugin" || info.GetName() != "csi.nearside.io" || info.GetEndpoint() != h.socket() {
		t.Errorf("the plugin is %v", info)
	}
	plugin, err := h.identity.GetPluginInfo(ctx, &spec.GetPluginInfoRequest{})
	h.must(err)
	node, err := h.node.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	h.must(err)
	if plugin.GetName() != info.GetName() || plugin.GetVendorVersion() != "test" || node.GetNodeId() != "node1" {
		t.Errorf("%v, %v", plugin, node)
	}
	capabilities, err := h.node.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	h.must(err)
	if len(capabilities.GetCapabilities()) > 0 {
		t.Errorf("capabilities: %v", capabilities)
	}
	_, err = h.node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{})
	wantCode(t, err, codes.Unimplemented)

	if ready, err := csi.Check(ctx, h.kubelet); ready || err != nil {
		t.Errorf("before the registration: %v, %v", ready, err)
	}
	h.notify()
	if ready, err := csi.Check(ctx, h.kubelet); !ready || err != nil {
		t.Errorf("after the registration: %v, %v", ready, err)
	}
	h.end()
	if _, err := os.Lstat(h.socket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if _, err := csi.Check(ctx, h.kubelet); err == nil {
		t.Error("a driver that has ended answers")
	}
}

// A socket that a killed driver has left is replaced, and the end of a driver leaves the socket of
// the driver that has replaced it.
func TestReplacedDriver(t *testing.T) {
	h := newHost(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.socket(), Net: "unix"})
	h.must(err)
	l.SetUnlinkOnClose(false)
	h.must(l.Close())
	old := h.start()
	end := old.end
	h.start()
	end()
	if _, err := csi.Check(t.Context(), h.kubelet); err != nil {
		t.Errorf("the new driver does not answer after the end of the old one: %v", err)
	}
}

// Only root may connect, even where the directory would let others in.
func TestOtherUsersCannotConnect(t *testing.T) {
	h := newHost(t).start()
	st, err := os.Stat(h.socket())
	h.must(err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %04o", st.Mode().Perm())
	}
	h.must(os.Chmod(h.socket(), 0o666))
	h.must(errors.Join(os.Chmod(h.kubelet+"/plugins_registry", 0o755), os.Chmod(filepath.Dir(h.kubelet), 0o755)))
	p, err := os.StartProcess("/proc/self/exe", []string{"check"}, &os.ProcAttr{
		Env:   []string{driverArgs + "=--check=alive --kubelet-dir=" + h.kubelet},
		Files: []*os.File{nil, nil, nil},
		Sys:   &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: agent, Gid: agent}},
	})
	h.must(err)
	end, err := p.Wait()
	h.must(err)
	if end.ExitCode() != 1 || !strings.Contains(h.log.String(), "uid=65532") {
		t.Errorf("the client ends with %v; the log:\n%s", end, h.log)
	}
}

// The kubelet tries a registration only once for each socket that appears, so the driver makes its
// socket appear again.
func TestFailedRegistration(t *testing.T) {
	h := newHost(t).start()
	w, err := fsnotify.NewWatcher() // the kubelet uses the same one
	h.must(err)
	defer w.Close()
	h.must(w.Add(h.kubelet + "/plugins_registry"))
	_, err = h.registration.NotifyRegistrationStatus(t.Context(),
		&registration.RegistrationStatus{Error: "no API server"})
	h.must(err)
	for e := range w.Events {
		if e.Has(fsnotify.Remove) {
			t.Errorf("the kubelet would unregister the driver: %v", e)
		}
		if e.Name == h.socket() && e.Has(fsnotify.Create) {
			break
		}
	}
	if _, err := csi.Check(t.Context(), h.kubelet); err != nil {
		t.Error(err)
	}
	if !strings.Contains(h.log.String(), "no API server") {
		t.Errorf("the log has no reason:\n%s", h.log)
	}
}

// A driver whose socket was removed ends, so that its container starts again.
func TestRemovedSocket(t *testing.T) {
	h := newHost(t)
	d, err := csi.New(h.options())
	h.must(err)
	done := make(chan error, 1)
	go func() { done <- d.Run(context.Background()) }()
	for {
		if os.Remove(h.socket()) == nil {
			break
		}
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "was removed or replaced") {
		t.Errorf("the driver has ended with %v", err)
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, "-kubelet-dir"},
		{"--nonsense", 64, "nonsense"},
		{"more", 64, `"more"`},
		{"--node-name=", 64, "spec.nodeName"},
		{"--node-name=n --kubelet-dir=var/lib", 64, "--kubelet-dir"},
		{"--node-name=n --run-dir=/run/../etc", 64, "--run-dir"},
		{"--node-name=n --owner=-1", 64, "--owner"},
		{"--node-name=n --run-dir=/nowhere --kubelet-dir=/nowhere", 69, "--kubelet-dir"},
		{"--check=well", 64, "alive or ready"},
		{"--check=ready --kubelet-dir=/nowhere", 1, "does not answer"},
	} {
		var stdout, stderr bytes.Buffer
		code := csi.Command(t.Context(), "test", strings.Fields(c.args), &stdout, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("csi %s: exit code %d, %s", c.args, code, stderr.String())
		}
	}
}
