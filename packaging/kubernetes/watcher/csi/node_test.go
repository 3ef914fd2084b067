package csi_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/csi"
)

const (
	uid1   = "11111111-2222-4333-8444-555555555555"
	uid2   = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	agent  = 65532
	prefix = "csi.storage.k8s.io/"
)

// host is a node with the directories of a kubelet and of an agent. It does what the kubelet does.
type host struct {
	testing.TB
	kubelet, run string
	node         spec.NodeClient
	identity     spec.IdentityClient
	registration registration.RegistrationClient
	log          *journal
	end          func() // ends the driver and waits for it
}

// journal keeps the log of a driver.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// newHost makes the directories in file systems of their own. The kubelet's is shared, as
// mountPropagation: Bidirectional makes it.
func newHost(t testing.TB) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir, err := os.MkdirTemp("/tmp", "csi") // paths of sockets have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{TB: t, kubelet: dir + "/kubelet", run: dir + "/run/nearside", log: &journal{}}
	for _, d := range []string{h.kubelet, dir + "/run"} {
		h.must(os.Mkdir(d, 0o755))
		h.must(syscall.Mount("tmpfs", d, "tmpfs", 0, "mode=0755"))
		t.Cleanup(func() { _ = syscall.Unmount(d, syscall.MNT_DETACH) })
	}
	h.must(syscall.Mount("", h.kubelet, "", syscall.MS_SHARED, ""))
	h.must(os.MkdirAll(h.kubelet+"/plugins_registry", 0o750))
	h.must(os.MkdirAll(h.kubelet+"/pods", 0o750))
	h.must(os.Mkdir(h.run, 0o751))
	h.must(os.Chown(h.run, agent, agent))
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) options() csi.Options {
	return csi.Options{Node: "node1", KubeletDir: h.kubelet, RunDir: h.run, Owner: agent, Version: "test",
		Log: slog.New(slog.NewTextHandler(h.log, nil))}
}

func (h *host) socket() string { return h.kubelet + "/plugins_registry/csi.nearside.io-reg.sock" }

// start runs a driver until the end of the test or of h.end.
func (h *host) start() *host {
	h.Helper()
	d, err := csi.New(h.options())
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	const serves = "the driver serves"
	before := strings.Count(h.log.String(), serves)
	go func() { done <- d.Run(ctx) }()
	for strings.Count(h.log.String(), serves) == before {
		select {
		case err := <-done:
			cancel()
			h.Fatalf("the driver has ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	c := h.dial()
	h.end = sync.OnceFunc(func() {
		_ = c.Close()
		cancel()
		if err := <-done; err != nil {
			h.Errorf("the driver has ended with %v", err)
		}
	})
	h.Cleanup(h.end)
	return h
}

// dial connects to the driver as the kubelet does.
func (h *host) dial() *grpc.ClientConn {
	h.Helper()
	c, err := grpc.NewClient("unix://"+h.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	h.must(err)
	h.node, h.identity = spec.NewNodeClient(c), spec.NewIdentityClient(c)
	h.registration = registration.NewRegistrationClient(c)
	return c
}

func (h *host) target(uid, volume string) string {
	return fmt.Sprintf("%s/pods/%s/volumes/kubernetes.io~csi/%s/mount", h.kubelet, uid, volume)
}

func (h *host) poddir(uid string) string { return h.run + "/pods/" + uid }

// request is what kubelet 1.34 sends for an inline volume, after it has made the parent directory.
func (h *host) request(uid, namespace, name, volume string) *spec.NodePublishVolumeRequest {
	h.Helper()
	at := h.target(uid, volume)
	h.must(os.MkdirAll(filepath.Dir(at), 0o750))
	h.must(os.WriteFile(filepath.Dir(at)+"/vol_data.json", []byte("{}"), 0o644))
	return &spec.NodePublishVolumeRequest{
		VolumeId:   fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+volume))),
		TargetPath: at,
		VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
		Readonly: true,
		VolumeContext: map[string]string{prefix + "pod.uid": uid, prefix + "pod.namespace": namespace,
			prefix + "pod.name": name, prefix + "serviceAccount.name": "default", prefix + "ephemeral": "true"},
	}
}

func (h *host) publish(r *spec.NodePublishVolumeRequest) error {
	_, err := h.node.NodePublishVolume(h.Context(), r)
	return err
}

func (h *host) unpublish(r *spec.NodePublishVolumeRequest) error {
	_, err := h.node.NodeUnpublishVolume(h.Context(),
		&spec.NodeUnpublishVolumeRequest{VolumeId: r.GetVolumeId(), TargetPath: r.GetTargetPath()})
	return err
}

// notify says that the kubelet has registered the driver.
func (h *host) notify() {
	h.Helper()
	_, err := h.registration.NotifyRegistrationStatus(h.Context(),
		&registration.RegistrationStatus{PluginRegistered: true})
	h.must(err)
}

// registered returns the content of a registration file.
func (h *host) registered(uid string) map[string]string {
	h.Helper()
	text, err := os.ReadFile(h.poddir(uid) + ".json")
	h.must(err)
	got := map[string]string{}
	h.must(json.Unmarshal(text, &got))
	return got
}

// published fails unless the target is the directory of the pod, with all flags, and registered.
func (h *host) published(uid, volume string) {
	h.Helper()
	var a, b unix.Stat_t
	h.must(unix.Stat(h.poddir(uid), &a))
	h.must(unix.Stat(h.target(uid, volume), &b))
	if a.Ino != b.Ino || a.Dev != b.Dev {
		h.Errorf("%s is not the directory of the pod", h.target(uid, volume))
	}
	if a.Uid != agent || a.Gid != agent || a.Mode&0o7777 != 0o755 {
		h.Errorf("the directory belongs to %d:%d with mode %04o", a.Uid, a.Gid, a.Mode&0o7777)
	}
	h.must(unix.Stat(filepath.Dir(h.poddir(uid)), &b))
	if b.Uid != 0 || b.Gid != agent || b.Mode&0o7777 != 0o750 {
		h.Errorf("the directory of all pods belongs to %d:%d with mode %04o", b.Uid, b.Gid, b.Mode&0o7777)
	}
	var st unix.Statfs_t
	h.must(unix.Statfs(h.target(uid, volume), &st))
	if want := int64(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); st.Flags&want != want {
		h.Errorf("the mount has the flags %x, %x are wanted", st.Flags, want)
	}
	h.must(unix.Stat(h.poddir(uid)+".json", &a))
	if a.Uid != 0 || a.Mode&0o7777 != 0o644 {
		h.Errorf("the registration belongs to %d with mode %04o", a.Uid, a.Mode&0o7777)
	}
}

// nothing fails if a pod has left something.
func (h *host) nothing(uid string) {
	h.Helper()
	for _, path := range []string{h.poddir(uid), h.poddir(uid) + ".json", h.run + "/pods/." + uid + ".json.new"} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			h.Errorf("%s is left: %v", path, err)
		}
	}
	found, err := filepath.Glob(h.target(uid, "*"))
	h.must(err)
	if len(found) > 0 || strings.Contains(h.mounts(), uid) {
		h.Errorf("left: %q, mounts:\n%s", found, h.mounts())
	}
}

// mounts returns the mounts below the kubelet's directory.
func (h *host) mounts() string {
	h.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	h.must(err)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, h.kubelet+"/") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func wantCode(t *testing.T, err error, want codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != want {
		t.Fatalf("the code is %s, %s is wanted: %v", status.Code(err), want, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestPublish(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	h.must(h.publish(r))
	h.published(uid1, "nearside")
	want := map[string]string{"uid": uid1, "namespace": "shop", "name": "web-0", "serviceAccount": "default"}
	if got := h.registered(uid1); !maps.Equal(got, want) {
		t.Errorf("the registration is %v, %v is wanted", got, want)
	}
	before, err := os.Stat(h.poddir(uid1) + ".json")
	h.must(err)
	mounts := h.mounts()
	h.must(h.publish(r))
	if after, err := os.Stat(h.poddir(uid1) + ".json"); err != nil || !os.SameFile(before, after) || h.mounts() != mounts {
		t.Error("the second call for a volume has changed something")
	}
	h.must(h.unpublish(r))
	h.nothing(uid1)
	h.must(h.unpublish(r))
	h.must(os.RemoveAll(h.kubelet + "/pods/" + uid1))
	h.must(h.unpublish(r))
}

// A socket and a FIFO of the agent work through the mount, which is read-only. The content of the
// directory disappears with the volume.
func TestSocketAndFIFOThroughTheMount(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	h.must(h.publish(r))
	h.must(os.MkdirAll(h.poddir(uid1)+"/fifos/deep", 0o755))
	l, err := net.Listen("unix", h.poddir(uid1)+"/xds.sock")
	h.must(err)
	defer l.Close()
	short := h.run + "/volume" // the path of the target is too long for a socket, but a pod does not see it
	h.must(os.Symlink(h.target(uid1, "nearside"), short))
	c, err := net.Dial("unix", short+"/xds.sock")
	h.must(err)
	_ = c.Close()
	h.must(unix.Mkfifo(h.poddir(uid1)+"/fifos/deep/log", 0o622))
	reader, err := os.OpenFile(h.poddir(uid1)+"/fifos/deep/log", os.O_RDWR, 0)
	h.must(err)
	defer reader.Close()
	writer, err := os.OpenFile(h.target(uid1, "nearside")+"/fifos/deep/log", os.O_WRONLY, 0)
	h.must(err)
	_, err = writer.WriteString("line\n")
	h.must(err)
	h.must(writer.Close())
	got := make([]byte, 5)
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "line\n" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := os.WriteFile(h.target(uid1, "nearside")+"/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a file can be made in the volume: %v", err)
	}
	h.must(h.unpublish(r))
	h.nothing(uid1)
}

// Two volumes of one pod have the same directory. It stays until both are gone.
func TestTwoVolumesOfOnePod(t *testing.T) {
	h := newHost(t).start()
	a, b := h.request(uid1, "shop", "web-0", "nearside"), h.request(uid1, "shop", "web-0", "second")
	h.must(h.publish(a))
	h.must(h.publish(b))
	h.published(uid1, "nearside")
	h.published(uid1, "second")
	h.must(h.unpublish(a))
	h.published(uid1, "second")
	h.must(h.unpublish(b))
	h.nothing(uid1)
}

// Two pods get different directories, and the end of one leaves the other untouched.
func TestTwoPods(t *testing.T) {
	h := newHost(t).start()
	a, b := h.request(uid1, "shop", "web-0", "nearside"), h.request(uid2, "bank", "web-0", "nearside")
	h.must(h.publish(a))
	h.must(h.publish(b))
	h.must(h.unpublish(a))
	h.nothing(uid1)
	h.published(uid2, "nearside")
	if got := h.registered(uid2)["namespace"]; got != "bank" {
		t.Errorf("the namespace is %q", got)
	}
}
