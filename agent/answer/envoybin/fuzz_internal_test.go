package envoybin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/envoyfuzz"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestEnvoyFuzz compares the check with an Envoy on unusual but plausible inputs. ENVOY_FUZZ_N is
// the number of inputs (0 or unset skips the test), ENVOY_FUZZ_SEED the seed, ENVOY_FUZZ_ONLY an
// optional group of inputs, and ENVOY_BIN the Envoy. The test fails if more than 1 % of the inputs
// are sent and rejected, or withheld although Envoy accepts them. Config that Envoy loads but can
// never use (severity unusable) is withheld on purpose and does not count.
func TestEnvoyFuzz(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ENVOY_FUZZ_N"))
	if n == 0 {
		t.Skip("make envoy-fuzz runs it")
	}
	seed, _ := strconv.ParseUint(cmp.Or(os.Getenv("ENVOY_FUZZ_SEED"), "1"), 10, 64)
	found, err := Find(os.Getenv, true)
	if err != nil || found == nil {
		t.Skipf("no Envoy to compare with: set %s (%v)", EnvoyVariable, err)
	}
	path := program(found.Path)
	version := versionOf(t, path)
	bases := fuzzBases(t, path)
	t.Logf("Envoy %s, seed %d, %d inputs over %d configs", version, seed, n, len(bases))

	trials := make([]*trial, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		e := &Binary{Path: path, Most: math.MaxInt}
		wg.Go(func() {
			for i := range next {
				trials[i] = &trial{Input: envoyfuzz.New(rand.New(rand.NewPCG(seed, uint64(i))), bases,
					os.Getenv("ENVOY_FUZZ_ONLY"))}
				trials[i].run(t, e, version)
			}
		})
	}
	for i := range trials {
		next <- i
	}
	close(next)
	wg.Wait()
	report(t, trials)
}

// trial is one input with its results.
type trial struct {
	envoyfuzz.Input
	all      []finding.Finding
	found    []finding.Finding // blocking findings
	said     string            // message of an Envoy that rejects it
	rejected bool
}

// run checks the input and validates it with Envoy.
func (x *trial) run(t *testing.T, e *Binary, version string) {
	if x.Config == nil {
		return
	}
	x.all = check.Check(nil, x.Config, fuzzFacts(version))
	for _, f := range x.all {
		if f.Severity.Blocks() {
			x.found = append(x.found, f)
		}
	}
	cfg, err := staticFrom(x.Config)
	if err != nil { // the input cannot be sent
		x.said, x.rejected = err.Error(), true
		return
	}
	answer, err := e.try(t.Context(), "default", "x", cfg)
	switch {
	case err != nil && strings.Contains(err.Error(), "signal"):
		x.said, x.rejected = err.Error(), true
	case err != nil:
		t.Errorf("%s %s: %v", x.Group, x.What, err)
	case len(answer) > 0:
		x.said, x.rejected = answer[0].Message, true
	}
}

// withheld reports whether the check predicts that Envoy rejects the input.
func (x *trial) withheld() bool {
	return slices.ContainsFunc(x.found, func(f finding.Finding) bool { return f.Severity == finding.Reject })
}

func report(t *testing.T, trials []*trial) {
	type row struct{ all, rejected, accepts, holds, unusable int }
	rows := map[string]*row{}
	sum := &row{}
	for _, x := range trials {
		if rows[x.Group] == nil {
			rows[x.Group] = &row{}
		}
		for _, r := range []*row{rows[x.Group], sum} {
			r.all++
			switch {
			case x.rejected && len(x.found) == 0:
				r.accepts++
			case !x.rejected && x.withheld():
				r.holds++
			case !x.rejected && len(x.found) > 0:
				r.unusable++
			}
			if x.rejected {
				r.rejected++
			}
		}
		switch {
		case x.Group == "refused" && strings.Contains(x.What, "envoy."):
			t.Logf("UNREADABLE %.400s", x.What)
		case x.rejected && len(x.found) == 0:
			t.Logf("FALSE ACCEPT %s: %s\n  Envoy: %.300s", x.Group, x.What, x.said)
		case !x.rejected && x.withheld():
			f := x.found[0]
			t.Logf("FALSE WITHHOLD %s: %s\n  rule %d: %s%s: %.300s", x.Group, x.What, f.Rule, f.Resource, f.Pointer, f.Message)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-14s %7s %9s %13s %11s %9s\n", "group", "inputs", "rejected", "false accepts",
		"false holds", "unusable")
	line := func(name string, r *row) {
		fmt.Fprintf(&b, "%-14s %7d %9d %13d %11d %9d\n", name, r.all, r.rejected, r.accepts, r.holds, r.unusable)
	}
	var names []string
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line(name, rows[name])
	}
	line("all", sum)
	t.Log(b.String())
	if os.Getenv("RULES_EVIDENCE") != "" {
		countRules(t, trials)
	}
	if sum.accepts*100 > sum.all || sum.holds*100 > sum.all {
		t.Errorf("more than 1 %% of %d inputs: %d are sent and rejected, %d are withheld although Envoy accepts them",
			sum.all, sum.accepts, sum.holds)
	}
}

// countRules logs for each rule the number of inputs with a finding, the number of inputs in which
// no other rule withholds a resource, and how many of these Envoy rejects. A missing cluster (31)
// is a consequence if another rule withholds the cluster.
func countRules(t *testing.T, trials []*trial) {
	counts := map[int][3]int{}
	for _, x := range trials {
		blocking, rules := map[int]bool{}, map[int]bool{}
		for _, f := range x.found {
			blocking[f.Rule] = true
		}
		if len(blocking) > 1 {
			delete(blocking, 31)
		}
		for _, f := range x.all {
			rules[f.Rule] = true
		}
		for rule := range rules {
			n := counts[rule]
			n[0]++
			if len(blocking) == 1 && blocking[rule] {
				if n[1]++; x.rejected {
					n[2]++
				}
			}
			counts[rule] = n
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "inputs %d\n", len(trials))
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		n := counts[rule]
		fmt.Fprintf(&b, "%d\t%d\t%d\t%d\n", rule, n[0], n[1], n[2])
	}
	if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile("testdata/fuzz-rules.tsv",
		[]byte(b.String()), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func fuzzFacts(version string) *finding.Facts {
	return &finding.Facts{Build: &finding.Build{Version: finding.ParseVersion(version)},
		StaticClusters: bootstrap.StaticClusters(), RE2Limit: math.MaxUint32, SecretsLater: true}
}

// fuzzBases are configs of real proxies without findings that Envoy accepts.
func fuzzBases(t *testing.T, path string) []*envoy.Snapshot {
	var out []*envoy.Snapshot
	e := &Binary{Path: path, Most: math.MaxInt}
	add := func(p *generate.Proxy) {
		if len(check.Check(nil, p.Snapshot(), fuzzFacts(""))) > 0 {
			return
		}
		if found, err := e.Try(t.Context(), p); err == nil && len(found) == 0 {
			out = append(out, p.Snapshot())
		}
	}
	kindtest.InputOf(t, "rich", []byte(envoyfuzz.Mesh)).Proxies(t, node.FlavorEnvoy, add)
	if len(out) < 2 {
		t.Fatal("the config for most inputs is not valid")
	}
	for i, in := range kindtest.OwnInputs(t) {
		if i%12 == 0 {
			in.Proxies(t, node.FlavorEnvoy, add)
		}
	}
	return out
}

// program returns the Envoy executable if path is a Python wrapper.
func program(path string) string {
	real, _ := filepath.EvalSymlinks(path)
	inside, _ := filepath.Glob(filepath.Join(filepath.Dir(cmp.Or(real, path)),
		"../../lib/python*/site-packages/envoy/_bin/envoy"))
	if len(inside) == 1 {
		return inside[0]
	}
	return path
}

// versionOf returns the version of an Envoy, such as 1.36.2.
func versionOf(t *testing.T, path string) string {
	out, err := exec.Command(path, "--version").Output()
	v := regexp.MustCompile(`/(\d+\.\d+\.\d+)`).FindSubmatch(out)
	if err != nil || v == nil {
		t.Fatalf("%s --version: %v: %s", path, err, out)
	}
	return string(v[1])
}
