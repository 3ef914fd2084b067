package main

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
	printf(textWriter{&b, true}, "%s", layout(on))
	if b.String() != want {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
	b.Reset()
	printf(textWriter{w: &b}, "%s", layout(on))
	if b.String() != on {
		t.Errorf("without colours %q", b.String())
	}
	for env, want := range map[string]bool{"": true, "NO_COLOR=1": false, "TERM=dumb": false, "NO_COLOR=": true} {
		if got := (&app{env: []string{env}}).colors(); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
}
