package dirtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
	"github.com/nearside-mesh/nearside/rotation"
)

// TestQuota checks that lines wait while the quota of the user is used up, with the reason in the
// health, and are stored once afterwards. Oldest backups make room first. The kernel of this test
// may have no quotas, so its write calls fail like those of a user at the limit.
func TestQuota(t *testing.T) {
	dir := disktest.TempDir(t)
	path := filepath.Join(dir, "access.log")
	f, err := rotation.Open(rotation.Options{Path: path, PurgeWhenFull: true})
	agenttest.Do(t, err)
	_, err = f.Write(t.Context(), []byte("old\n"))
	agenttest.Do(t, err, f.Rotate())
	disk := disktest.New(t, dir)
	const failures = 4
	failed, health := 0, ""
	disk.SetFault(func(o disktest.Operation) error {
		if o.Kind != disktest.Write || failed == failures {
			return nil
		}
		if failed++; failed == failures {
			health = f.Stats().Health.Error() // of the attempt before
		}
		return unix.EDQUOT
	})
	disk.Run(func() {
		if n, err := f.Write(t.Context(), []byte("one\ntwo\n")); n != 8 || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	})
	if !strings.Contains(health, "quota exceeded; free disk space") {
		t.Errorf("health at the limit: %q", health)
	}
	if s := f.Stats(); s.Health != nil || s.Purged != 1 || s.LinesDropped != 0 {
		t.Errorf("stats %+v", s)
	}
	agenttest.Do(t, f.Close())
	if got, err := os.ReadFile(path); err != nil || string(got) != "one\ntwo\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}
