package agent

import "testing"

func TestTrimIsDueOnceAfterABurst(t *testing.T) {
	const mb = 1 << 20
	var m trimmer
	for i, look := range []struct {
		allocated uint64
		due       bool
	}{
		{1 * mb, false},   // nothing to reclaim
		{100 * mb, false}, // still busy
		{180 * mb, false},
		{181 * mb, true}, // quiet
		{182 * mb, false},
		{200 * mb, false}, // a small burst
		{201 * mb, false},
		{203 * mb, false},
		{206 * mb, false},
		{209 * mb, false},
		{212 * mb, false},
		{215 * mb, true}, // slow growth of an idle agent
		{215 * mb, false},
	} {
		if got := m.Due(look.allocated); got != look.due {
			t.Errorf("look %d, at %d MiB: due %v, want %v", i, look.allocated/mb, got, look.due)
		}
	}
}
