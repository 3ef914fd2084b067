package csi_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// TestRefused sends calls that no honest kubelet sends. None may change anything.
func TestRefused(t *testing.T) {
	h := newHost(t).start()
	type request = spec.NodePublishVolumeRequest
	set := func(key, value string) func(*request) {
		return func(r *request) { r.VolumeContext[prefix+key] = value }
	}
	unset := func(key string) func(*request) { return func(r *request) { delete(r.VolumeContext, prefix+key) } }
	at := func(path string) func(*request) {
		return func(r *request) { r.TargetPath = strings.ReplaceAll(path, "KUBELET", h.kubelet) }
	}
	below := "KUBELET/pods/" + uid1 + "/volumes/kubernetes.io~csi/"
	for name, c := range map[string]struct {
		change func(*request)
		want   string
	}{
		"no volume id":          {func(r *request) { r.VolumeId = "" }, "volume_id is missing"},
		"long volume id":        {func(r *request) { r.VolumeId = strings.Repeat("a", 257) }, "at most 256"},
		"volume id as path":     {func(r *request) { r.VolumeId = "../x" }, "volume_id"},
		"no target":             {at(""), "target_path is missing"},
		"relative target":       {at(strings.TrimPrefix(below+"nearside/mount", "KUBELET/")), "does not have the form"},
		"target elsewhere":      {at("/etc"), "does not have the form"},
		"target of another dir": {at("KUBELETX/pods/" + uid1 + "/volumes/kubernetes.io~csi/nearside/mount"), "does not have"},
		"dots":                  {at(below + "../nearside/mount"), "does not have the form"},
		"dots as name":          {at(below + "../mount"), "is not the name of a pod's volume"},
		"dots as uid":           {at("KUBELET/pods/../volumes/kubernetes.io~csi/nearside/mount"), "is not the uid"},
		"double slash":          {at(below + "/nearside/mount"), "does not have the form"},
		"final slash":           {at(below + "nearside/mount/"), "does not have the form"},
		"other plugin":          {at("KUBELET/pods/" + uid1 + "/volumes/kubernetes.io~x/nearside/mount"), "does not have"},
		"other last element":    {at(below + "nearside/data"), "does not have the form"},
		"zero byte":             {at(below + "near\x00side/mount"), "is not the name"},
		"long target":           {at(below + strings.Repeat("a", 5000) + "/mount"), "does not have the form"},
		"long volume name":      {at(below + strings.Repeat("a", 64) + "/mount"), "at most 63 characters"},
		"target of another pod": {at(strings.Replace(below, uid1, uid2, 1) + "nearside/mount"), "differs from the uid"},
		"uid of another pod":    {set("pod.uid", uid2), "differs from the uid"},
		"uid in capitals":       {set("pod.uid", strings.ToUpper(uid2)), "UUID of lowercase"},
		"uid as path":           {set("pod.uid", "../../etc"), "UUID of lowercase"},
		"no uid":                {unset("pod.uid"), "podInfoOnMount: true"},
		"no name":               {unset("pod.name"), "podInfoOnMount: true"},
		"no namespace":          {unset("pod.namespace"), "podInfoOnMount: true"},
		"no service account":    {unset("serviceAccount.name"), "podInfoOnMount: true"},
		"name as path":          {set("pod.name", "../web"), "DNS name"},
		"name with a newline":   {set("pod.name", "web\n"), "DNS name"},
		"name of two labels..":  {set("pod.name", "a..b"), "DNS name"},
		"long name":             {set("pod.name", strings.Repeat("a", 254)), "at most 253"},
		"dot in the namespace":  {set("pod.namespace", "a.b"), "DNS label"},
		"long namespace":        {set("pod.namespace", strings.Repeat("n", 64)), "at most 63"},
		"service account":       {set("serviceAccount.name", "UPPER"), "DNS name"},
		"persistent volume":     {set("ephemeral", "false"), "no PersistentVolumes"},
		"no pod info":           {func(r *request) { r.VolumeContext = nil }, "podInfoOnMount: true"},
		"unknown attribute":     {func(r *request) { r.VolumeContext["mode"] = "0777" }, `"mode"`},
		"forged key":            {set("pod.owner", "root"), `pod.owner`},
		"tokens":                {set("serviceAccount.tokens", "{}"), "serviceAccount.tokens"},
		"long key":              {func(r *request) { r.VolumeContext[strings.Repeat("k", 9999)] = "" }, "kkk..."},
		"no capability":         {func(r *request) { r.VolumeCapability = nil }, "volume_capability is missing"},
		"empty capability":      {func(r *request) { r.VolumeCapability = &spec.VolumeCapability{} }, "only mount"},
		"block device": {func(r *request) {
			r.VolumeCapability.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		}, "only mount"},
		"many nodes": {func(r *request) {
			r.VolumeCapability.AccessMode.Mode = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, "MULTI_NODE_MULTI_WRITER"},
		"writable":     {func(r *request) { r.Readonly = false }, "csi.readOnly: true"},
		"file system":  {func(r *request) { r.VolumeCapability.GetMount().FsType = "ext4" }, "remove csi.fsType"},
		"mount flags":  {func(r *request) { r.VolumeCapability.GetMount().MountFlags = []string{"dev"} }, "nodev"},
		"mount group":  {func(r *request) { r.VolumeCapability.GetMount().VolumeMountGroup = "0" }, "fsGroupPolicy"},
		"secrets":      {func(r *request) { r.Secrets = map[string]string{"a": "b"} }, "nodePublishSecretRef"},
		"attached":     {func(r *request) { r.PublishContext = map[string]string{"a": "b"} }, "attachRequired"},
		"staging path": {func(r *request) { r.StagingTargetPath = "/etc" }, "attachRequired"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := h.request(uid1, "shop", "web-0", "nearside")
			c.change(r)
			wantCode(t, h.publish(r), codes.InvalidArgument, c.want)
			h.nothing(uid1)
			h.nothing(uid2)
			if left := h.mounts(); left != "" {
				t.Errorf("mounted:\n%s", left)
			}
		})
	}
	for _, path := range []string{"", "/etc", h.kubelet + "/pods", h.kubelet + "/pods/" + uid1,
		h.kubelet + "/pods/" + uid1 + "/volumes/kubernetes.io~csi/../../../x/mount"} {
		wantCode(t, h.unpublish(&spec.NodePublishVolumeRequest{VolumeId: "csi-1", TargetPath: path}), codes.InvalidArgument)
	}
	wantCode(t, h.unpublish(&spec.NodePublishVolumeRequest{TargetPath: h.target(uid1, "a")}), codes.InvalidArgument)
}

// Symbolic links at any element of the target lead nowhere.
func TestLinksOnTheTarget(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	elsewhere := h.kubelet + "/elsewhere"
	for _, element := range []string{"", "/volumes", "/volumes/kubernetes.io~csi", "/volumes/kubernetes.io~csi/nearside",
		"/volumes/kubernetes.io~csi/nearside/mount"} {
		at := h.kubelet + "/pods/" + uid1 + element
		h.must(os.RemoveAll(elsewhere))
		if strings.HasSuffix(element, "mount") {
			h.must(os.Mkdir(elsewhere, 0o755))
		} else {
			h.must(os.Rename(at, elsewhere))
		}
		h.must(os.Symlink(elsewhere, at))
		wantCode(t, h.publish(r), codes.FailedPrecondition)
		wantCode(t, h.unpublish(r), codes.FailedPrecondition)
		h.must(os.Remove(at))
		if !strings.HasSuffix(element, "mount") {
			h.must(os.Rename(elsewhere, at))
		}
		if left := h.mounts(); left != "" {
			t.Errorf("%s as a link: mounted\n%s", element, left)
		}
	}
	h.must(h.publish(r))
	h.published(uid1, "nearside")
}

// What others have mounted at a target stays, and so does the volume of another driver.
func TestForeignMount(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	h.must(os.Mkdir(r.GetTargetPath(), 0o750))
	h.must(syscall.Mount("tmpfs", r.GetTargetPath(), "tmpfs", 0, ""))
	h.must(os.WriteFile(r.GetTargetPath()+"/precious", nil, 0o600))
	wantCode(t, h.publish(r), codes.Internal, "unmount it")
	wantCode(t, h.unpublish(r), codes.Internal, "unmount it")
	if _, err := os.Stat(r.GetTargetPath() + "/precious"); err != nil {
		t.Error(err)
	}
	h.must(syscall.Unmount(r.GetTargetPath(), 0))
	h.must(h.publish(r))
	h.published(uid1, "nearside")
}

// The driver acts only in a directory in which nobody else can choose names.
func TestDirectoryOfAnotherUser(t *testing.T) {
	h := newHost(t).start()
	r := h.request(uid1, "shop", "web-0", "nearside")
	pods := h.run + "/pods"
	h.must(os.Chown(pods, agent, agent))
	wantCode(t, h.publish(r), codes.Internal, "belongs to uid 65532", "delete it")
	h.must(os.Chown(pods, 0, 0))
	h.must(os.Chmod(pods, 0o775))
	wantCode(t, h.publish(r), codes.Internal, "mode 0775")
	h.must(os.Rename(pods, pods+".old"))
	h.must(os.Symlink(pods+".old", pods))
	wantCode(t, h.publish(r), codes.FailedPrecondition)
	h.must(os.Remove(pods))
	h.must(h.publish(r))
	h.published(uid1, "nearside")
	h.nothing(uid2)
}

// A pod keeps the identity with which it was registered.
func TestChangedIdentity(t *testing.T) {
	h := newHost(t).start()
	h.must(h.publish(h.request(uid1, "shop", "web-0", "nearside")))
	for _, r := range []*spec.NodePublishVolumeRequest{h.request(uid1, "bank", "web-0", "nearside"),
		h.request(uid1, "shop", "web-1", "second")} {
		wantCode(t, h.publish(r), codes.AlreadyExists, "namespace shop, name web-0")
	}
	if got := h.registered(uid1)["namespace"]; got != "shop" || strings.Contains(h.mounts(), "second") {
		t.Errorf("the namespace is %q, mounts:\n%s", got, h.mounts())
	}
}
