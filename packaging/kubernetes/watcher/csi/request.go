package csi

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Bounds of what the kubelet sends.
const (
	maxName     = 253  // names of pods, service accounts, and nodes
	maxLabel    = 63   // names of namespaces and volumes
	maxVolumeID = 256  // names of the kubelet for inline volumes have 68 bytes
	maxPath     = 4095 // PATH_MAX without the final zero
)

// Keys of the volume context that the kubelet sets for a driver with podInfoOnMount. It overwrites
// volume attributes of the pod with the same keys.
const (
	keyName           = "csi.storage.k8s.io/pod.name"
	keyNamespace      = "csi.storage.k8s.io/pod.namespace"
	keyUID            = "csi.storage.k8s.io/pod.uid"
	keyServiceAccount = "csi.storage.k8s.io/serviceAccount.name"
	keyEphemeral      = "csi.storage.k8s.io/ephemeral"
)

// volumesDir is the directory below a pod's directory of the kubelet that has its CSI volumes.
const volumesDir = "volumes/kubernetes.io~csi"

var (
	labelForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	nameForm  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidForm   = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	idForm    = regexp.MustCompile(`^[-A-Za-z0-9_.]+$`)
)

// Pod is the identity of a pod, and the content of its registration file.
type Pod struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	ServiceAccount string `json:"serviceAccount"`
}

// validate checks the form of all fields. No accepted value can have another meaning in a path or
// in a node id.
func (p *Pod) validate() error {
	var faults []error
	for _, f := range []struct {
		key, value string
		form       *regexp.Regexp
		bound      int
		want       string
	}{
		{keyUID, p.UID, uidForm, 36, "a UUID of lowercase hexadecimal digits"},
		{keyNamespace, p.Namespace, labelForm, maxLabel, "a DNS label of at most 63 characters"},
		{keyName, p.Name, nameForm, maxName, "a DNS name of at most 253 characters"},
		{keyServiceAccount, p.ServiceAccount, nameForm, maxName, "a DNS name of at most 253 characters"},
	} {
		if f.value == "" {
			faults = append(faults, fmt.Errorf("volume_context[%q] is missing: set spec.podInfoOnMount: true "+
				"in the CSIDriver %s", f.key, DriverName))
		} else if len(f.value) > f.bound || !f.form.MatchString(f.value) {
			faults = append(faults, fmt.Errorf("volume_context[%q]: %q is not %s", f.key, clip(f.value), f.want))
		}
	}
	return errors.Join(faults...)
}

// target is a place where the kubelet wants a volume.
type target struct{ uid, volume string }

// parent returns the directory of the volume, relative to the kubelet's directory of pods.
func (t target) parent() string { return path.Join(t.uid, volumesDir, t.volume) }

// parseTarget accepts only a path of the form that the kubelet uses for CSI volumes of a pod.
func parseTarget(kubeletDir, at string) (target, error) {
	form := kubeletDir + "/pods/UID/" + volumesDir + "/NAME/mount"
	if at == "" {
		return target{}, errors.New("target_path is missing")
	}
	rest, below := strings.CutPrefix(at, kubeletDir+"/pods/")
	parts := strings.Split(rest, "/")
	if len(at) > maxPath || !below || len(parts) != 5 {
		return target{}, fmt.Errorf("target_path: %q does not have the form %s: set --kubelet-dir of the driver "+
			"to the root directory of this kubelet", clip(at), form)
	}
	t := target{parts[0], parts[3]}
	switch {
	case !uidForm.MatchString(t.uid):
		return target{}, fmt.Errorf("target_path: %q is not the uid of a pod (a UUID of lowercase hexadecimal digits): "+
			"the path must have the form %s", clip(t.uid), form)
	case len(t.volume) > maxLabel || !labelForm.MatchString(t.volume):
		return target{}, fmt.Errorf("target_path: %q is not the name of a pod's volume (a DNS label of at most "+
			"%d characters): the path must have the form %s", clip(t.volume), maxLabel, form)
	case at != kubeletDir+"/pods/"+t.parent()+"/mount":
		return target{}, fmt.Errorf("target_path: %q does not have the form %s", clip(at), form)
	}
	return t, nil
}

func checkVolumeID(id string) error {
	switch {
	case id == "":
		return errors.New("volume_id is missing")
	case len(id) > maxVolumeID || !idForm.MatchString(id):
		return fmt.Errorf("volume_id: %q must have at most %d letters, digits, and characters of -_.",
			clip(id), maxVolumeID)
	}
	return nil
}

// parsePublish returns who gets which directory. It refuses everything that the driver would have
// to ignore, and every contradiction between the parts of a request.
func parsePublish(kubeletDir string, r *csi.NodePublishVolumeRequest) (p Pod, t target, err error) {
	if err := checkVolumeID(r.GetVolumeId()); err != nil {
		return p, t, err
	}
	if t, err = parseTarget(kubeletDir, r.GetTargetPath()); err != nil {
		return p, t, err
	}
	if err := checkVolume(r); err != nil {
		return p, t, err
	}
	if err := checkContext(r.GetVolumeContext()); err != nil {
		return p, t, err
	}
	c := r.GetVolumeContext()
	p = Pod{UID: c[keyUID], Namespace: c[keyNamespace], Name: c[keyName], ServiceAccount: c[keyServiceAccount]}
	if err := p.validate(); err != nil {
		return p, t, err
	}
	if p.UID != t.uid {
		return p, t, fmt.Errorf("volume_context[%q]: %s differs from the uid in target_path, %s: "+
			"the volume of a pod identifies only this pod", keyUID, p.UID, t.uid)
	}
	return p, t, nil
}

// checkVolume refuses volumes that are not the plain read-only directory.
func checkVolume(r *csi.NodePublishVolumeRequest) error {
	c := r.GetVolumeCapability()
	mode := c.GetAccessMode().GetMode()
	switch {
	case c == nil:
		return errors.New("volume_capability is missing")
	case c.GetMount() == nil:
		return errors.New("volume_capability.access_type: only mount is possible: use the volume as a directory")
	case mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER &&
		mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		return fmt.Errorf("volume_capability.access_mode: %s is not possible: use an inline volume of a pod", mode)
	case !r.GetReadonly(): // a container runtime may replace the flags of the mount
		return errors.New("readonly: false is not possible: set csi.readOnly: true for the volume of the pod")
	case c.GetMount().GetFsType() != "":
		return fmt.Errorf("fsType: %q is not possible: remove csi.fsType from the volume of the pod",
			clip(c.GetMount().GetFsType()))
	case len(c.GetMount().GetMountFlags()) > 0:
		return fmt.Errorf("mount_flags: %q is not possible: the directory is always mounted with ro, nosuid, nodev, "+
			"and noexec", clip(c.GetMount().GetMountFlags()[0]))
	case c.GetMount().GetVolumeMountGroup() != "":
		return fmt.Errorf("volume_mount_group: %q is not possible: set spec.fsGroupPolicy: None in the CSIDriver %s",
			clip(c.GetMount().GetVolumeMountGroup()), DriverName)
	case len(r.GetSecrets()) > 0:
		return errors.New("secrets are not possible: remove csi.nodePublishSecretRef from the volume of the pod")
	case len(r.GetPublishContext()) > 0 || r.GetStagingTargetPath() != "":
		return fmt.Errorf("only inline volumes of pods are possible: set spec.attachRequired: false in the "+
			"CSIDriver %s, and use no PersistentVolume", DriverName)
	}
	return nil
}

// checkContext refuses volumes that are not inline, and unknown attributes.
func checkContext(c map[string]string) error {
	unknown := []string{}
	for key := range c {
		switch key {
		case keyName, keyNamespace, keyUID, keyServiceAccount, keyEphemeral:
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("volume_context[%q] is unknown: remove it from csi.volumeAttributes of the volume; "+
			"the driver has no attributes", clip(unknown[0]))
	}
	switch ephemeral, ok := c[keyEphemeral]; {
	case !ok:
		return fmt.Errorf("volume_context[%q] is missing: set spec.podInfoOnMount: true in the CSIDriver %s",
			keyEphemeral, DriverName)
	case ephemeral != "true":
		return fmt.Errorf("volume_context[%q]: %q must be \"true\": only inline volumes of pods are possible, "+
			"no PersistentVolumes", keyEphemeral, clip(ephemeral))
	}
	return nil
}

// clip shortens what others have sent, for messages.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
