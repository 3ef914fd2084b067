package csi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FuzzPublish sends paths and identities to the driver. It may accept only the path of the kubelet
// for this pod, and then it registers exactly this pod.
func FuzzPublish(f *testing.F) {
	h := newHost(f).start()
	path := "/volumes/kubernetes.io~csi/nearside/mount"
	f.Add("csi-1", "/pods/"+uid1+path, uid1, "shop", "web-0", "default", "true", "", "")
	f.Add("csi-1", "/pods/"+uid2+path, uid1, "shop", "web-0", "default", "true", "", "")
	f.Add("csi-1", "/pods/"+uid1+"/../"+uid2+path, uid2, "shop", "web-0", "default", "true", "", "")
	f.Add("csi-1", "/pods/"+uid1+path+"/", uid1, "a.b", "a..b", "", "false", "mode", "0777")
	f.Add("csi-1", "/pods/"+uid1+"\\057"+path, uid1, "shop", "web-0\n", "default", "true", "", "")
	f.Fuzz(func(t *testing.T, id, at, uid, namespace, name, account, ephemeral, key, value string) {
		h.TB = t
		defer func() { h.TB = f }()
		r := h.request(uid1, "shop", "web-0", "nearside")
		r.VolumeId, r.TargetPath = id, h.kubelet+at
		r.VolumeContext = map[string]string{prefix + "pod.uid": uid, prefix + "pod.namespace": namespace,
			prefix + "pod.name": name, prefix + "serviceAccount.name": account, prefix + "ephemeral": ephemeral}
		if key != "" {
			r.VolumeContext[key] = value
		}
		_, err := h.node.NodePublishVolume(t.Context(), r)
		switch status.Code(err) {
		case codes.OK:
		case codes.InvalidArgument, codes.FailedPrecondition:
			if left := h.mounts(); left != "" {
				t.Fatalf("refused with %v, but mounted:\n%s", err, left)
			}
			return
		default: // a client cannot send text that is not UTF-8
			text := id + at + uid + namespace + name + account + ephemeral + key + value
			if text == strings.ToValidUTF8(text, "") {
				t.Fatal(err)
			}
			return
		}
		volume := filepath.Base(filepath.Dir(r.GetTargetPath()))
		if r.GetTargetPath() != h.target(uid, volume) || ephemeral != "true" ||
			strings.ContainsAny(namespace+name+account, "/\n ") {
			t.Fatalf("accepted: %v", r)
		}
		got := h.registered(uid)
		if got["uid"] != uid || got["namespace"] != namespace || got["name"] != name || got["serviceAccount"] != account {
			t.Fatalf("registered %v for %v", got, r)
		}
		_, err = h.node.NodeUnpublishVolume(t.Context(),
			&spec.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: r.GetTargetPath()})
		if err != nil || h.mounts() != "" {
			t.Fatalf("%v, mounted:\n%s", err, h.mounts())
		}
		if left, _ := os.ReadDir(h.run + "/pods"); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	})
}
