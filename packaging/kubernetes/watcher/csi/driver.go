package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	socketName = DriverName + "-reg.sock"
	watchEvery = 2 * time.Second // how often the driver looks whether its socket exists
	stopWithin = 5 * time.Second // how long running calls may take at the end
	// After a failed registration, the driver waits, each time twice as long.
	firstRetry, lastRetry = time.Second, 32 * time.Second
)

// socketPath returns the path of the socket in the directory that the kubelet watches. It serves
// the registration and the driver.
func socketPath(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", socketName)
}

// Driver serves the kubelet of one node.
type Driver struct {
	csi.UnimplementedIdentityServer
	registration.UnimplementedRegistrationServer
	o          Options
	node       node
	registered atomic.Bool
	refused    chan struct{} // one slot: the kubelet could not register the driver
}

// New returns a driver with valid options.
func New(o Options) (*Driver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &Driver{o: o, refused: make(chan struct{}, 1)}
	d.node.o = &d.o
	return d, nil
}

// Run serves until ctx ends, and then removes its socket, so that the kubelet unregisters the
// driver. Volumes stay. It fails if the kubelet would not see the mounts of the driver, and when
// its socket was removed or replaced.
func (d *Driver) Run(ctx context.Context) error {
	if err := d.prepare(); err != nil {
		return err
	}
	l, id, err := d.listen()
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ConnectionTimeout(stopWithin), grpc.MaxConcurrentStreams(16))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, &d.node)
	registration.RegisterRegistrationServer(server, d)
	served := make(chan error, 1)
	go func() { served <- server.Serve(&rootOnly{l, d.o.Log}) }()
	d.o.Log.Info("the driver serves", "socket", socketPath(d.o.KubeletDir), "version", d.o.Version)

	err = d.watch(ctx, id, served)
	if d.present(id) {
		_ = os.Remove(socketPath(d.o.KubeletDir))
	}
	timer := time.AfterFunc(stopWithin, server.Stop)
	server.GracefulStop()
	timer.Stop()
	return err
}

// watch returns when ctx ends, or when the driver cannot serve any longer.
func (d *Driver) watch(ctx context.Context, id fileID, served <-chan error) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	var retry <-chan time.Time
	wait := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-d.refused:
			retry = time.After(wait)
			wait = min(2*wait, lastRetry)
		case <-retry:
			retry = nil
			if err := d.announce(); err != nil {
				return err
			}
		case <-ticker.C:
			if d.registered.Load() {
				wait = firstRetry
			}
			if !d.present(id) {
				return fmt.Errorf("%s was removed or replaced by another process", socketPath(d.o.KubeletDir))
			}
		}
	}
}

// prepare fails early if nothing could be published.
func (d *Driver) prepare() error {
	pods := d.o.KubeletDir + "/pods"
	real, err := filepath.EvalSymlinks(pods)
	if err != nil {
		return fmt.Errorf("%w: set --kubelet-dir to the root directory of the kubelet, and mount it at the same path", err)
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	if !sharing(real, mounts) {
		return fmt.Errorf("the kubelet would not see mounts below %s: set mountPropagation: Bidirectional for it in "+
			"the container of the driver", pods)
	}
	reg, err := openRegistry(d.o.RunDir, d.o.Owner, true)
	if errors.Is(err, errBusy) { // the driver that this one replaces still works
		return nil
	}
	if err != nil {
		return err
	}
	reg.close()
	return nil
}

// fileID tells files apart that have one path.
type fileID struct{ dev, ino uint64 }

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{st.Dev, st.Ino}, nil
}

// present reports whether the socket at the driver's path is that of this driver.
func (d *Driver) present(id fileID) bool {
	found, err := identify(socketPath(d.o.KubeletDir))
	return err == nil && found == id
}

// listen makes the socket under a hidden name, which the kubelet ignores, until only root can use
// it.
func (d *Driver) listen() (*net.UnixListener, fileID, error) {
	path := socketPath(d.o.KubeletDir)
	hidden := filepath.Join(filepath.Dir(path), "."+socketName)
	if err := os.Remove(hidden); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fileID{}, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fileID{}, fmt.Errorf("%w: mount plugins_registry of the kubelet at the same path", err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	id, err2 := identify(hidden)
	if err = errors.Join(err, err2); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fileID{}, err
	}
	return l, id, nil
}

// announce makes the kubelet register the driver again: it does so for each name that appears.
func (d *Driver) announce() error {
	path := socketPath(d.o.KubeletDir)
	hidden := filepath.Join(filepath.Dir(path), "."+socketName)
	if err := os.Rename(path, hidden); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// rootOnly accepts connections of the user of the driver only, which is the kubelet's.
type rootOnly struct {
	*net.UnixListener
	log interface{ Warn(string, ...any) }
}

func (l *rootOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(c)
		if err == nil && int(uid) == os.Geteuid() {
			return c, nil
		}
		_ = c.Close()
		l.log.Warn("refused a connection: only the kubelet may connect", "uid", uid, "error", err)
	}
}

func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var fault error
	err = raw.Control(func(fd uintptr) { cred, fault = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, fault); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// GetInfo tells the kubelet that this socket serves the CSI driver, too.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: DriverName,
		Endpoint: socketPath(d.o.KubeletDir), SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus learns whether the kubelet uses the driver. After a failure, the driver
// asks for another try, because the kubelet makes none. After a success, what deleted pods have
// left is removed: only now is it sure that this is the directory of the running kubelet.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	d.registered.Store(s.GetPluginRegistered())
	if !s.GetPluginRegistered() {
		d.o.Log.Error("the kubelet has not registered the driver", "reason", clip(s.GetError()))
		select {
		case d.refused <- struct{}{}:
		default:
		}
		return &registration.RegistrationStatusResponse{}, nil
	}
	d.o.Log.Info("the kubelet has registered the driver")
	if err := d.node.clean(); err != nil {
		d.o.Log.Error("cannot remove what deleted pods have left", "reason", err)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo is part of the identity service of CSI.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: DriverName, VendorVersion: d.o.Version}, nil
}

// GetPluginCapabilities is part of the identity service of CSI.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe reports as ready that the kubelet has registered the driver.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(d.registered.Load())}, nil
}

// Check asks the running driver whether the kubelet has registered it.
func Check(ctx context.Context, kubeletDir string) (registered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	c, err := grpc.NewClient("unix://"+socketPath(kubeletDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer c.Close()
	r, err := csi.NewIdentityClient(c).Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return false, fmt.Errorf("the driver does not answer at %s: %w", socketPath(kubeletDir), err)
	}
	return r.GetReady().GetValue(), nil
}
