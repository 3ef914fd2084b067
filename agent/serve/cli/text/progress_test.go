package text

import (
	"strings"
	"testing"
	"time"
)

// TestProgress has a line that says how long it takes, from the pace so far, and that is gone in
// the end.
func TestProgress(t *testing.T) {
	var out strings.Builder
	at := time.Unix(1_800_000_000, 0)
	reported, done := Progress(&out, "at work", func() time.Time { return at })
	for _, step := range []struct {
		after  time.Duration
		n, all int
		want   string
	}{
		{100 * time.Millisecond, 0, 0, ""}, // too soon
		{100 * time.Millisecond, 0, 0, "at work: the agent serves others first"},
		{400 * time.Millisecond, 100, 1100, "at work: 100 of 1100"},
		{time.Second, 300, 1100, "at work: 300 of 1100, about 4s left"},
		{100 * time.Millisecond, 320, 1100, ""},
		{3 * time.Second, 1099, 1100, "at work: 1099 of 1100, about 1s left"},
		{time.Second, 1100, 1100, "at work: 1100 of 1100"},
	} {
		out.Reset()
		at = at.Add(step.after)
		reported(step.n, step.all)
		if got := strings.TrimPrefix(out.String(), "\r\033[K"); got != step.want {
			t.Errorf("%d of %d: %q, want %q", step.n, step.all, got, step.want)
		}
	}
	out.Reset()
	if done(); out.String() != "\r\033[K" {
		t.Errorf("the line stays: %q", out.String())
	}
	out.Reset()
	reported, done = Progress(&out, "at work", func() time.Time { return at })
	reported(1, 1)
	if done(); out.String() != "" {
		t.Errorf("what is quick shows %q", out.String())
	}
}
