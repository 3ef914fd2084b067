package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// node serves the node service of CSI.
type node struct {
	csi.UnimplementedNodeServer
	o  *Options
	mu sync.Mutex // one change at a time
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.o.Node}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume mounts the directory of a pod, and then registers it for the agent.
func (n *node) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	p, t, err := parsePublish(n.o.KubeletDir, r)
	if err != nil {
		n.o.Log.Warn("refused a volume", "target", clip(r.GetTargetPath()), "reason", err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.publish(p, t); err != nil {
		n.o.Log.Error("cannot publish a volume", "namespace", p.Namespace, "pod", p.Name, "uid", p.UID, "reason", err)
		return nil, status.Error(code(err), err.Error())
	}
	n.o.Log.Info("published", "namespace", p.Namespace, "pod", p.Name, "uid", p.UID, "volume", t.volume)
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) publish(p Pod, t target) error {
	parent, err := n.parent(t)
	if err != nil {
		return err
	}
	defer parent.Close()
	reg, err := openRegistry(n.o.RunDir, n.o.Owner, true)
	if err != nil {
		return err
	}
	defer reg.close()
	known, err := reg.known(p)
	if err != nil {
		return err
	}
	if _, err := n.owned(t, parent); err != nil {
		return err
	}
	dir, err := reg.directory(p.UID)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := attach(dir, parent); err != nil || known {
		return err
	}
	return reg.register(p)
}

// NodeUnpublishVolume removes what NodePublishVolume made, in the reverse order. If the pod has
// another volume of this driver, its registration and directory stay until that is removed.
func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	err := checkVolumeID(r.GetVolumeId())
	var t target
	if err == nil {
		t, err = parseTarget(n.o.KubeletDir, r.GetTargetPath())
	}
	if err != nil {
		n.o.Log.Warn("refused to remove a volume", "target", clip(r.GetTargetPath()), "reason", err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.unpublish(t); err != nil {
		n.o.Log.Error("cannot remove a volume", "uid", t.uid, "volume", t.volume, "reason", err)
		return nil, status.Error(code(err), err.Error())
	}
	n.o.Log.Info("removed", "uid", t.uid, "volume", t.volume)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *node) unpublish(t target) error {
	parent, err := n.parent(t)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the volume was removed by an earlier call
		parent = nil
	case err != nil:
		return err
	default:
		defer parent.Close()
	}
	targets, err := n.owned(t, parent)
	if err != nil {
		return err
	}
	delete(targets, t)
	last := true
	for other := range targets {
		last = last && other.uid != t.uid
	}
	reg, err := openRegistry(n.o.RunDir, n.o.Owner, false)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the node has restarted
		last = false
	case err != nil:
		return err
	default:
		defer reg.close()
	}
	if last {
		if err := reg.unregister(t.uid); err != nil {
			return err
		}
	}
	if parent != nil {
		if err := detach(parent); err != nil {
			return err
		}
	}
	if last {
		return reg.removeDirectory(t.uid)
	}
	return nil
}

// parent opens the directory of a volume, which the kubelet makes.
func (n *node) parent(t target) (*os.File, error) {
	pods, err := os.Open(n.o.KubeletDir + "/pods")
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	return openBelow(pods, t.parent(), unix.O_PATH, unix.RESOLVE_NO_XDEV)
}

// owned returns the targets at which directories of pods are mounted. It fails if something else is
// mounted at t, because the driver may not remove that.
func (n *node) owned(t target, parent *os.File) (map[target]bool, error) {
	targets, err := n.published()
	if err != nil || parent == nil || targets[t] {
		return targets, err
	}
	at, err := openTarget(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return targets, nil
	}
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if found, err := mounted(at); err != nil {
		return nil, err
	} else if found {
		return nil, fmt.Errorf("%s: something else than the directory of this pod is mounted there: unmount it",
			at.Name())
	}
	return targets, nil
}

func (n *node) published() (map[target]bool, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	return published(n.o.KubeletDir, mounts), nil
}

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text))
}

// clean removes what is left of pods that do not exist any more. A pod exists while its directory
// is mounted, or while the kubelet has a directory for it: then the kubelet calls the driver for
// it.
func (n *node) clean() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	reg, err := openRegistry(n.o.RunDir, n.o.Owner, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer reg.close()
	targets, err := n.published()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for t := range targets {
		used[t.uid] = true
	}
	uids, others, err := reg.pods()
	if err != nil {
		return err
	}
	for _, name := range others {
		n.o.Log.Warn("unknown file in the directory of pods: delete it", "file", clip(n.o.RunDir+"/pods/"+name))
	}
	var faults []error
	for _, uid := range uids {
		faults = append(faults, n.cleanPod(reg, uid, used[uid]))
	}
	return errors.Join(faults...)
}

func (n *node) cleanPod(reg *registry, uid string, used bool) error {
	if used { // the owner may have changed with the version of the driver
		dir, err := reg.directory(uid)
		if err != nil {
			return err
		}
		return dir.Close()
	}
	if _, err := os.Lstat(n.o.KubeletDir + "/pods/" + uid); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(reg.unregister(uid), reg.removeDirectory(uid)); err != nil {
		return err
	}
	n.o.Log.Info("removed what a deleted pod has left", "uid", uid)
	return nil
}

// code returns the gRPC code of an error. The kubelet tries again in all cases.
func code(err error) codes.Code {
	switch {
	case errors.Is(err, errBusy):
		return codes.Aborted
	case errors.Is(err, errTaken):
		return codes.AlreadyExists
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR),
		errors.Is(err, unix.EXDEV):
		return codes.FailedPrecondition
	}
	return codes.Internal
}
