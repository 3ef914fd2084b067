package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkReady measures the time and the CPU time until an agent with 5,000 resources on disk is
// ready: from its store, from one file, and from 5,000 files.
func BenchmarkReady(b *testing.B) {
	text := manyDataplanes(4500) + manyPolicies(499)
	measure := func(b *testing.B, dir string) {
		b.Helper()
		var used, elapsed time.Duration
		for b.Loop() {
			before, began := cpu(b), time.Now()
			r := agenttest.Up(b, dir, agent.Deps{})
			used, elapsed = used+cpu(b)-before, elapsed+time.Since(began)
			if n := len(r.Store().Snapshot().Records()); n != 5000 {
				b.Fatalf("%d resources", n)
			}
			if err := r.Stop(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s")
		b.ReportMetric(elapsed.Seconds()/float64(b.N), "s")
	}
	b.Run("store", func(b *testing.B) {
		dir := agenttest.ShortDir(b)
		r := agenttest.Up(b, dir, agent.Deps{})
		agenttest.Apply(b, r.Agent, text)
		if err := r.Stop(); err != nil {
			b.Fatal(err)
		}
		measure(b, dir)
	})
	for name, files := range map[string][]string{"file": {text}, "files": strings.Split(text, "---\n")} {
		b.Run(name, func(b *testing.B) {
			dir := agenttest.ShortDir(b)
			if err := os.MkdirAll(filepath.Join(dir, "resources"), 0o755); err != nil {
				b.Fatal(err)
			}
			for i, f := range files {
				agenttest.Write(b, filepath.Join(dir, "resources", fmt.Sprintf("%d.yaml", i)), f)
			}
			measure(b, dir)
		})
	}
}
