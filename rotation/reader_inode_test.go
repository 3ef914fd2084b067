package rotation_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestReusedInode checks that a compressed backup is not taken for a later file that has the inode
// of the removed original.
func TestReusedInode(t *testing.T) {
	for content, want := range map[string]bool{"active\n": false, "new\n": false, "old\n": true} {
		path := newPath(t)
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		mark := binary.LittleEndian.AppendUint64([]byte{'N', 'S', 16, 0}, uint64(st.Dev))
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		zip.Extra = binary.LittleEndian.AppendUint64(mark, st.Ino)
		if _, err := zip.Write([]byte("old\n")); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".gz", packed.Bytes(), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := rotation.IsCopy(t, path, path+".gz"); got != want {
			t.Errorf("%q is a copy of old: %v", content, got)
		}
	}
}
