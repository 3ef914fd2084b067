package csi

import (
	"maps"
	"strings"
	"testing"
)

const (
	someUID = "11111111-2222-4333-8444-555555555555"
	volume  = "/k/pods/" + someUID + "/volumes/kubernetes.io~csi/"
)

func TestPublished(t *testing.T) {
	text := strings.Join([]string{
		`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw`,
		`40 22 0:30 / /k rw shared:7 master:2 - tmpfs tmpfs rw`,
		`41 40 0:25 /nearside/pods/` + someUID + ` ` + volume + `a/mount ro shared:9 - tmpfs tmpfs rw`,
		`42 40 0:25 /nearside/pods/` + someUID + `//deleted ` + volume + `b/mount ro - tmpfs tmpfs rw`,
		`43 40 8:2 / ` + volume + `of-another-driver/mount rw - ext4 /dev/vdb rw`,
		`44 40 0:25 /nearside/pods/aaaaaaaa-2222-4333-8444-555555555555 ` + volume + `of-another-pod/mount rw - tmpfs t rw`,
		`45 22 0:31 / /k\040x rw - tmpfs tmpfs rw`,
	}, "\n") + "\n"
	mounts, err := parseMounts(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[target]bool{{someUID, "a"}: true, {someUID, "b"}: true}
	if got := published("/k", mounts); !maps.Equal(got, want) {
		t.Errorf("published: %v, %v is wanted", got, want)
	}
	for dir, want := range map[string]bool{"/": true, "/other": true, "/k/pods": true, "/k x/pods": false, "/kk": true} {
		if got := sharing(dir, mounts); got != want {
			t.Errorf("%s: shared is %v", dir, got)
		}
	}
	for _, text := range []string{"", "22 1 8:1 / /\n"} {
		if _, err := parseMounts(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// Text that is damaged is an error, never an empty list, and no text makes the driver take a path
// outside of the kubelet's directory for a target.
func FuzzMounts(f *testing.F) {
	f.Add("41 40 0:25 /pods/" + someUID + " " + volume + "a/mount ro shared:9 - tmpfs tmpfs rw\n")
	f.Add(`45 22 0:31 / /k\040x\ rw - tmpfs tmpfs rw`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts(text)
		if (err == nil) != (len(mounts) > 0) {
			t.Fatalf("%d mounts, %v", len(mounts), err)
		}
		sharing("/k/pods", mounts)
		for at := range published("/k", mounts) {
			if again, err := parseTarget("/k", "/k/pods/"+at.parent()+"/mount"); err != nil || again != at {
				t.Fatalf("%v: %v, %v", at, again, err)
			}
		}
	})
}
