package main

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestMemoryLimit checks that the Go memory limit is 90 % of the agent's limit, and that the log
// says so.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, c := range []struct {
		name, variable string
		limit          memlimit.Provider
		want           int64
		said           string
	}{
		{"limited", "", memlimit.Limit(10 << 30), 9 << 30, "level=INFO msg=\"memory limit\" bytes=9663676416"},
		{"not limited", "", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, math.MaxInt64, "level=DEBUG"},
		{"no cgroup", "", func() (uint64, error) { return 0, memlimit.ErrNoCgroup }, before, "level=DEBUG"},
		{"unknown", "", func() (uint64, error) { return 0, errors.New("damaged") }, before, "set GOMEMLIMIT"},
		{"off", "off", memlimit.Limit(10 << 30), before, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			if c.variable != "" {
				t.Setenv("AUTOMEMLIMIT", c.variable)
			}
			var b bytes.Buffer
			limitMemory(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})), c.limit)
			if got := debug.SetMemoryLimit(-1); got != c.want || !strings.Contains(b.String(), c.said) {
				t.Errorf("the limit is %d, want %d; logged %q", got, c.want, b.String())
			}
		})
	}
}
