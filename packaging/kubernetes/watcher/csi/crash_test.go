package csi_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/csi"
)

// unfinished are states in which a driver that was killed leaves a node. Each ends what the one
// before it has begun.
var unfinished = []struct {
	name string
	make func(h *host)
}{
	{"nothing", func(*host) {}},
	{"pods", func(h *host) { h.must(os.Mkdir(h.run+"/pods", 0o700)) }},
	{"directory", func(h *host) { h.must(os.Mkdir(h.poddir(uid1), 0o700)) }},
	{"owner", func(h *host) { h.must(os.Chown(h.poddir(uid1), agent, agent)) }},
	{"target", func(h *host) { h.must(os.Mkdir(h.target(uid1, "nearside"), 0o750)) }},
	{"mount", func(h *host) {
		h.must(syscall.Mount(h.poddir(uid1), h.target(uid1, "nearside"), "", syscall.MS_BIND, ""))
	}},
	{"temporary file", func(h *host) {
		h.must(os.WriteFile(h.run+"/pods/."+uid1+".json.new", []byte(`{"uid": "1`), 0o600))
	}},
	{"damaged file", func(h *host) { h.must(os.WriteFile(h.poddir(uid1)+".json", []byte(`{"uid": "1`), 0o600)) }},
}

// After a crash at any step, the next call of the kubelet completes the step, or removes
// everything.
func TestCrashes(t *testing.T) {
	for i, state := range unfinished {
		for _, then := range []string{"publish", "unpublish", "restart"} {
			t.Run(strings.ReplaceAll(state.name, " ", "-")+"/"+then, func(t *testing.T) {
				h := newHost(t)
				r := h.request(uid1, "shop", "web-0", "nearside")
				for _, s := range unfinished[:i+1] {
					s.make(h)
				}
				h.start()
				switch then {
				case "publish":
					h.must(h.publish(r))
					h.published(uid1, "nearside")
					if got := h.registered(uid1)["name"]; got != "web-0" {
						t.Errorf("the name is %q", got)
					}
				case "restart": // a driver that finds the pod at its start changes nothing that the kubelet needs
					h.notify()
					h.must(h.publish(r))
					h.published(uid1, "nearside")
				}
				h.must(h.unpublish(r))
				h.nothing(uid1)
			})
		}
	}
}

// TestKilled kills the process of the driver at random moments of both calls.
func TestKilled(t *testing.T) {
	h := newHost(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	interrupted := 0
	for range rounds {
		r := h.request(uid1, "shop", "web-0", "nearside")
		for _, call := range []func(*spec.NodePublishVolumeRequest) error{h.publish, h.unpublish} {
			p, end := h.process()
			done := make(chan error, 1)
			go func() { done <- call(r) }()
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
			h.must(p.Kill())
			if <-done != nil {
				interrupted++
			}
			end()
		}
		h.start()
		h.notify()
		h.must(h.publish(r))
		h.published(uid1, "nearside")
		h.must(h.unpublish(r))
		h.nothing(uid1)
		h.end()
	}
	t.Logf("%d of %d calls were interrupted", interrupted, 2*rounds)
}

// process starts the driver as a process and connects to it. end waits for the process.
func (h *host) process() (p *os.Process, end func()) {
	h.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), driverArgs+"="+strings.Join([]string{"--node-name=node1", "--kubelet-dir=" + h.kubelet,
		"--run-dir=" + h.run, "--owner=" + strconv.Itoa(agent)}, " "))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.must(c.Start())
	for until := time.Now().Add(2 * time.Minute); ; {
		if c, err := net.Dial("unix", h.socket()); err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(until) {
			h.Fatal("the driver does not serve")
		}
	}
	conn := h.dial()
	_, err := h.node.NodeGetInfo(h.Context(), &spec.NodeGetInfoRequest{})
	h.must(err)
	return c.Process, func() {
		_ = c.Wait()
		_ = conn.Close()
	}
}

// What deleted pods have left is removed when the kubelet has registered the driver, and nothing
// else.
func TestClean(t *testing.T) {
	h := newHost(t).start()
	kept, gone := h.request(uid1, "shop", "web-0", "nearside"), h.request(uid2, "shop", "web-1", "nearside")
	h.must(h.publish(kept))
	h.must(h.publish(gone))
	h.end()
	h.must(syscall.Unmount(gone.GetTargetPath(), 0)) // as after an outage in which the pod was removed by hand
	h.must(os.RemoveAll(h.kubelet + "/pods/" + uid2))
	h.must(os.WriteFile(h.run+"/pods/."+uid2+".json.new", nil, 0o600))
	h.must(os.WriteFile(h.poddir(uid2)+"/xds.sock", nil, 0o600))
	h.must(os.WriteFile(h.run+"/pods/notes", nil, 0o600))
	h.must(os.Chown(h.poddir(uid1), 0, 0)) // the agent had another user
	h.start()
	if _, err := os.Stat(h.poddir(uid2) + ".json"); err != nil {
		t.Errorf("removed before the kubelet has registered the driver: %v", err)
	}
	h.notify()
	h.nothing(uid2)
	h.published(uid1, "nearside")
	if !strings.Contains(h.log.String(), "/pods/notes") {
		t.Errorf("the log does not name the unknown file:\n%s", h.log)
	}
}

// While the kubelet has a directory for a pod, its files stay: the kubelet calls the driver for it.
func TestCleanWaitsForTheKubelet(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	h.must(h.publish(r))
	h.must(syscall.Unmount(r.GetTargetPath(), 0))
	h.notify()
	h.must(h.publish(r))
	h.published(uid1, "nearside")
}

// After the start of a node, /run is empty and nothing is mounted.
func TestStartOfTheNode(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	h.must(h.publish(r))
	h.end()
	h.must(syscall.Unmount(r.GetTargetPath(), 0))
	h.must(os.RemoveAll(h.run + "/pods"))
	h.start()
	h.notify()
	h.must(h.publish(r))
	h.published(uid1, "nearside")
	h.must(h.unpublish(r))
	h.nothing(uid1)
}

// If the directory of a pod was deleted while it is mounted, the next call mounts a new one, and
// the end of the pod removes both.
func TestDeletedDirectory(t *testing.T) {
	h := newHost(t).start()
	for _, republish := range []bool{false, true} {
		r := h.request(uid1, "shop", "web-0", "nearside")
		h.must(h.publish(r))
		h.must(os.RemoveAll(h.run + "/pods"))
		if republish {
			h.must(h.publish(r))
			h.published(uid1, "nearside")
		}
		h.must(h.unpublish(r))
		h.nothing(uid1)
	}
}

// Without shared mounts, the kubelet would give pods empty directories.
func TestMountsMustBeShared(t *testing.T) {
	h := newHost(t)
	h.must(syscall.Mount("", h.kubelet, "", syscall.MS_PRIVATE, ""))
	h.fails("mountPropagation: Bidirectional")
	h.must(syscall.Mount("", h.kubelet, "", syscall.MS_SHARED, ""))
	h.must(os.Remove(h.kubelet + "/pods"))
	h.fails("set --kubelet-dir")
	h.must(os.Mkdir(h.kubelet+"/pods", 0o750))
	h.must(os.Remove(h.kubelet + "/plugins_registry"))
	h.fails("plugins_registry")
}

func (h *host) fails(want string) {
	h.Helper()
	d, err := csi.New(h.options())
	h.must(err)
	if err := d.Run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
		h.Errorf("the driver ends with %v, %q is wanted", err, want)
	}
	if left, _ := filepath.Glob(h.kubelet + "/plugins_registry/*"); len(left) > 0 {
		h.Errorf("left: %q", left)
	}
}
