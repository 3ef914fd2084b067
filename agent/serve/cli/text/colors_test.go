package text

import (
	"strings"
	"testing"
)

// TestColors: words for how things are have colours where they stand alone, and nowhere else.
func TestColors(t *testing.T) {
	const on = "MESH      NAME   STATE      REASON\n" +
		"default   web    rejected   is it rejected or pending\n" +
		"default   db     synced     -\n" +
		"ok   agent: nearside answers\n" +
		"WARN secrets: x\n" +
		"  FAIL state on disk: x\n" +
		"error: no such file\n" +
		"an error: x\n"
	want := strings.NewReplacer("web    rejected   is", "web    "+red+"rejected"+plain+"   is",
		"synced", green+"synced"+plain, "ok   agent", green+"ok"+plain+"   agent",
		"WARN", yellow+"WARN"+plain, "error: no", red+"error"+plain+": no").Replace(on)
	var b strings.Builder
	Printf(Writer{&b, true}, "%s", Layout(on))
	if b.String() != want {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
	b.Reset()
	Printf(Writer{W: &b}, "%s", Layout(on))
	if b.String() != on {
		t.Errorf("without colours %q", b.String())
	}
}
