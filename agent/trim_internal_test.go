package agent

import "testing"

func TestTrimIsDueOnceAfterABurst(t *testing.T) {
	const mb = 1 << 20
	var m trimmer
	for i, look := range []struct {
		allocated, live uint64
		due             bool
	}{
		{1 * mb, 1, false},   // nothing to reclaim
		{100 * mb, 1, false}, // still busy
		{180 * mb, 1, false},
		{181 * mb, 1, true}, // quiet
		{182 * mb, 1, false},
		{187 * mb, 1, false}, // a small burst
		{188 * mb, 1, false},
		{191 * mb, 1, true},         // slow growth of an idle agent
		{194 * mb, 300 * mb, false}, // a collection of a large heap costs more
		{200 * mb, 300 * mb, false},
		{203 * mb, 300 * mb, false},
		{220 * mb, 300 * mb, false},
		{222 * mb, 300 * mb, false},
		{223 * mb, 300 * mb, true},
		{223 * mb, 1, false},
	} {
		if got := m.Due(look.allocated, look.live); got != look.due {
			t.Errorf("look %d, at %d MiB: due %v, want %v", i, look.allocated/mb, got, look.due)
		}
	}
}
