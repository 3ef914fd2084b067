package agent_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// manyPolicies returns n policies of five kinds for the services of manyDataplanes. They select
// proxies of the mesh, by tags, by labels, and by service.
func manyPolicies(n int) string {
	var b strings.Builder
	for i := range n {
		service := fmt.Sprintf("many-%d", i%400)
		target := [...]string{"{kind: Mesh}", "{kind: MeshSubset, tags: {kuma.io/service: " + service + "}}",
			"{kind: Dataplane, labels: {kuma.io/service: " + service + "}}",
			"{kind: MeshService, name: " + service + "}"}[i/5%4]
		kind := [...]string{"MeshTimeout", "MeshRetry", "MeshCircuitBreaker", "MeshAccessLog", "MeshTrafficPermission"}[i%5]
		to := "to: [{targetRef: {kind: MeshService, name: " + service + "}, default: %s}]"
		spec := [...]string{
			fmt.Sprintf(to, fmt.Sprintf("{connectionTimeout: %ds, http: {requestTimeout: 9s}}", 1+i%9)),
			fmt.Sprintf(to, fmt.Sprintf("{http: {numRetries: %d}}", 1+i%9)),
			fmt.Sprintf(to, fmt.Sprintf("{connectionLimits: {maxConnections: %d}}", 1+i%99)),
			fmt.Sprintf(to, fmt.Sprintf("{backends: [{type: File, file: {path: /var/log/mesh/%d.log}}]}", i%9)),
			"from: [{targetRef: {kind: MeshSubset, tags: {kuma.io/service: " + service + "}}, default: {action: Allow}}]",
		}[i%5]
		fmt.Fprintf(&b, "---\n{type: %s, mesh: default, name: p-%d, spec: {targetRef: %s, %s}}\n", kind, i, target, spec)
	}
	return b.String()
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkManyPolicies measures the CPU time of a dry run and of an apply of 4,000 Dataplanes with
// and without 500 policies.
func BenchmarkManyPolicies(b *testing.B) {
	for _, n := range []int{0, 500} {
		text := manyDataplanes(4000) + manyPolicies(n)
		b.Run(fmt.Sprintf("dryrun/%d", n), func(b *testing.B) {
			a := agenttest.RunAgent(b)
			before := cpu(b)
			for b.Loop() {
				w, err := apply(b.Context(), a, text, true)
				if err != nil || w.Diff == nil || len(w.Diff.Proxies) != 4000 {
					b.Fatal(err, w)
				}
			}
			b.ReportMetric((cpu(b)-before).Seconds()/float64(b.N), "cpu-s")
		})
		b.Run(fmt.Sprintf("apply/%d", n), func(b *testing.B) {
			used := time.Duration(0)
			for b.Loop() {
				a := agenttest.RunAgent(b)
				before := cpu(b)
				if _, err := apply(b.Context(), a, text, false); err != nil {
					b.Fatal(err)
				}
				agenttest.Eventually(b, "the resources are in force", func() bool {
					return a.Last() != nil && a.Last().Revision >= a.Store().Snapshot().Revision()
				})
				used += cpu(b) - before
			}
			b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s")
		})
	}
}
