package change_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// pool has one policy of each kind. TOP, TO, and SVC are replaced by targetRefs, N by a number.
var pool = []string{
	"type: MeshTimeout, spec: {targetRef: TOP, to: [{targetRef: TO, default: {connectionTimeout: Ns, " +
		"http: {requestTimeout: 9s}}}], from: [{targetRef: {kind: Mesh}, default: {idleTimeout: Nh}}]}",
	"type: MeshTimeout, spec: {targetRef: TOP, to: [{targetRef: TO, default: {http: {streamIdleTimeout: Ns}}}]}",
	"type: MeshCircuitBreaker, spec: {targetRef: TOP, to: [{targetRef: TO, " +
		"default: {connectionLimits: {maxConnections: N}}}]}",
	"type: MeshAccessLog, spec: {targetRef: TOP, to: [{targetRef: TO, default: {backends: [{type: File, " +
		"file: {path: /var/log/N.log}}]}}], from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, " +
		"tcp: {address: '127.0.0.1:500N'}}]}}]}",
	"type: MeshTrafficPermission, spec: {targetRef: TOP, from: [{targetRef: {kind: MeshSubset, tags: {version: vN}}, " +
		"default: {action: Allow}}]}",
	"type: MeshFaultInjection, spec: {targetRef: {kind: MeshService, name: web}, from: [{targetRef: {kind: Mesh}, " +
		"default: {http: [{abort: {httpStatus: 50N, percentage: 5}}]}}]}",
	"type: MeshHTTPRoute, spec: {targetRef: TOP, to: [{targetRef: SVC, rules: [{matches: [{path: {type: PathPrefix, " +
		"value: /N}}], default: {backendRefs: [{kind: MeshService, name: svc-2, weight: 1}]}}]}]}",
	"type: MeshProxyPatch, spec: {targetRef: TOP, default: {appendModifications: [{cluster: {operation: Add, " +
		"value: '{name: extra-N, connectTimeout: 5s, type: STATIC}'}}]}}",
	"type: MeshRetry, spec: {targetRef: TOP, to: [{targetRef: TO, default: {http: {numRetries: N}}}]}",
	"type: Timeout, sources: [{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}], " +
		"conf: {connectTimeout: Ns}",
	"type: CircuitBreaker, sources: [{match: {kuma.io/service: '*'}}], " +
		"destinations: [{match: {kuma.io/service: svc-1}}], conf: {thresholds: {maxConnections: N}}",
	"type: Dataplane, networking: {address: 10.0.0.N, inbound: [{port: 8080, tags: {kuma.io/service: svc-N, " +
		"kuma.io/protocol: http, version: vN}}]}",
}

// drawn draws resources of the pool. There are few names, so that two draws share some.
func drawn(r *rapid.T, label string, shadow bool) string {
	var docs []string
	seen := map[string]bool{}
	for range rapid.IntRange(0, 5).Draw(r, label) {
		doc := rapid.SampledFrom(pool).Draw(r, "of the pool")
		name := fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(r, "name"))
		kind, _, _ := strings.Cut(doc, ",")
		if seen[kind+name] {
			continue
		}
		seen[kind+name] = true
		doc = strings.NewReplacer(
			"TOP", rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: web}",
				"{kind: MeshSubset, tags: {version: v1}}"}).Draw(r, "top"),
			"TO", rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: svc-1}",
				"{kind: MeshService, name: svc-4}"}).Draw(r, "to"),
			"SVC",
			rapid.SampledFrom([]string{"{kind: MeshService, name: svc-1}", "{kind: MeshService, name: svc-2}"}).Draw(r, "svc"),
			"N", fmt.Sprint(rapid.IntRange(1, 3).Draw(r, "n"))).Replace(doc)
		if shadow && rapid.Bool().Draw(r, "shadow") && !strings.Contains(kind, "Dataplane") {
			doc += ", labels: {kuma.io/effect: shadow}"
		}
		docs = append(docs, fmt.Sprintf("{mesh: default, name: %s, %s}", name, doc))
	}
	return strings.Join(docs, "\n---\n")
}

// documents returns the config and the rules of a proxy in the form that the patches apply to.
func documents(t *rapid.T, m *generate.Mesh, name string) (config, rules any) {
	value := func(v any) any {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		d, err := jsonpatch.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	none := value(map[string]any{})
	c, _, err := render.ProxyConfig(m, name, nil, render.ConfigOptions{})
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return none, none
	} else if err != nil {
		t.Fatal(err)
	}
	doc, _, err := explain.ProxyRules(m, name, explain.RulesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]any{}
	for _, k := range doc.Rules {
		k.Warnings = []string{}
		byKind[k.Type] = k
	}
	return value(c.XDS), value(byKind)
}

// TestDiffLeadsThere changes a mesh at random and checks that the patches of each proxy turn its
// old config into the new one, that other proxies do not change, and that every change has a cause.
func TestDiffLeadsThere(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		now, put := decode(t, services+"\n---\n"+drawn(r, "now", true)), decode(t, drawn(r, "put", true))
		c := change.Question{Set: resource.NewSet(now), Put: put, Shadow: rapid.Bool().Draw(r, "with shadow"),
			NewMesh: newMesh}
		given := map[resource.Key]bool{}
		for _, x := range put {
			given[x.Key] = true
		}
		for _, x := range now {
			if x.Kind != "Mesh" && !given[x.Key] && rapid.IntRange(0, 4).Draw(r, "delete") == 0 {
				c.Delete = append(c.Delete, x.Key)
			}
		}
		d, err := diffFor(context.Background(), c)
		if err != nil {
			r.Fatal(err)
		}
		if rapid.IntRange(0, 4).Draw(r, "ask again") == 0 {
			if second, err := diffFor(context.Background(), c); err != nil || !cmp.Equal(d, second) {
				r.Fatalf("the same question has another answer: %v\n%s", err, cmp.Diff(d, second))
			}
		}
		from, err := newMesh(c.Set, "default", nil)
		if err != nil {
			r.Fatal(err)
		}
		after := slices.DeleteFunc(now, func(x *resource.Resource) bool {
			return given[x.Key] || slices.Contains(c.Delete, x.Key)
		})
		to, err := newMesh(resource.NewSet(slices.Concat(after, put)), "default", nil)
		if err != nil {
			r.Fatal(err)
		}
		if c.Shadow {
			to = to.Shadow()
		}
		of := map[string]*api.ProxyDiff{}
		names := map[string]bool{"svc-1": true, "svc-2": true, "web": true, "p0": true, "p1": true, "p2": true}
		changed := false
		for i := range d.Proxies {
			of[d.Proxies[i].Name] = &d.Proxies[i]
			changed = changed || d.Proxies[i].Action != api.ActionUnchanged
			if !names[d.Proxies[i].Name] {
				r.Errorf("a proxy %s", d.Proxies[i].Name)
			}
		}
		if changed != d.Changed {
			r.Errorf("changed is %t", d.Changed)
		}
		for name := range names {
			configA, rulesA := documents(r, from, name)
			configB, rulesB := documents(r, to, name)
			p := of[name]
			if p == nil {
				p = &api.ProxyDiff{}
			} else {
				checkProxyDiff(r, p)
			}
			for what, x := range map[string]struct {
				patch jsonpatch.Patch
				a, b  any
			}{"config": {p.Config.Patch, configA, configB}, "rules": {p.Rules.Patch, rulesA, rulesB}} {
				got, err := x.patch.Apply(x.a)
				if err != nil || !jsonpatch.Equal(got, x.b) {
					want, _ := json.MarshalIndent(x.b, "", " ")
					have, _ := json.MarshalIndent(got, "", " ")
					r.Errorf("%s of %s: the patch does not lead there: %v\n%s", what, name, err, cmp.Diff(string(want), string(have)))
				}
				shortest, _ := json.Marshal(jsonpatch.Diff(x.a, x.b))
				if ours, _ := json.Marshal(x.patch); len(ours) > 4 && string(ours) != string(shortest) && what == "config" {
					var u, v any
					if json.Unmarshal(ours, &u) != nil || json.Unmarshal(shortest, &v) != nil || !cmp.Equal(u, v) {
						r.Errorf("%s of %s: the patch is not that of the whole documents: %s", what, name, cmp.Diff(v, u))
					}
				}
			}
		}
	})
}

// checkProxyDiff checks that the counts, items, and causes of a proxy's diff are consistent.
func checkProxyDiff(r *rapid.T, p *api.ProxyDiff) {
	if p.Truncated || p.Unattributed || p.Error != "" {
		r.Errorf("%s: %+v", p.Name, p)
	}
	for _, piece := range []api.PartDiff{p.Config, p.Rules} {
		sum := 0
		for _, s := range piece.Summary {
			sum += s.Added + s.Changed + s.Removed
		}
		if sum != len(piece.Items) {
			r.Errorf("%s: %d items, counted %d", p.Name, len(piece.Items), sum)
		}
		for _, it := range piece.Items {
			if len(it.By) == 0 {
				r.Errorf("%s: nobody causes %s %s %s", p.Name, it.Type, it.Name, it.Action)
			}
			if it.Action == api.ActionChanged && len(it.Changes) == 0 {
				r.Errorf("%s: %s %s changes in nothing", p.Name, it.Type, it.Name)
			}
			for _, f := range it.Changes {
				if len(f.By) == 0 || f.Before == nil && f.After == nil || string(f.Before) == string(f.After) {
					r.Errorf("%s: %s %s: %+v", p.Name, it.Type, it.Name, f)
				}
			}
		}
	}
}

// TestDiffCases compares now.yaml and new.yaml of each case in testdata. The first line of the
// comment may contain "shadow" and "delete=TYPE/MESH/NAME". want has a line for each change of each
// proxy, with its causes.
func TestDiffCases(t *testing.T) {
	kindtest.Cases(t, "testdata/*.txtar", func(t *testing.T, file string, ar *txtar.Archive) {
		if len(ar.Files) != 3 {
			t.Fatal("a case has now.yaml, new.yaml and want")
		}
		first, _, _ := strings.Cut(string(ar.Comment), "\n")
		c := change.Question{Set: resource.NewSet(decode(t, string(ar.Files[0].Data))), NewMesh: newMesh}
		if text := string(ar.Files[1].Data); strings.TrimSpace(text) != "" {
			c.Put = decode(t, text)
		}
		for _, f := range strings.Fields(first) {
			if f == "shadow" {
				c.Shadow = true
			}
			if k, ok := strings.CutPrefix(f, "delete="); ok {
				p := strings.Split(k, "/")
				c.Delete = append(c.Delete, resource.Key{Kind: p[0], Mesh: p[1], Name: p[2]})
			}
		}
		d, err := diffFor(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		got := []byte(lines(d))
		if os.Getenv("UPDATE_GOLDEN") != "" {
			ar.Files[2].Data = got
			if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(string(ar.Files[2].Data), string(got)); diff != "" {
			t.Error(diff)
		}
	})
}

// lines formats a diff as text.
func lines(d *api.Diff) string {
	var b strings.Builder
	refs := func(list []api.Ref) string {
		var out []string
		for _, r := range list {
			out = append(out, r.Type+"/"+r.Name)
		}
		return " (" + strings.Join(out, ", ") + ")"
	}
	for _, r := range d.Resources {
		fmt.Fprintf(&b, "%s/%s %s", r.Type, r.Name, r.Action)
		if r.Shadow {
			b.WriteString(" shadow")
		}
		b.WriteString("\n")
	}
	for _, p := range d.Proxies {
		fmt.Fprintf(&b, "%s %s%s\n", p.Name, p.Action, refs(p.Policies))
		for _, piece := range []api.PartDiff{p.Config, p.Rules} {
			for _, it := range piece.Items {
				fmt.Fprintf(&b, "  %s %s %s%s\n", it.Type[strings.LastIndexByte(it.Type, '.')+1:], it.Name, it.Action, refs(it.By))
				for _, f := range it.Changes {
					fmt.Fprintf(&b, "    %s: %s -> %s%s\n", f.Path, f.Before, f.After, refs(f.By))
				}
			}
		}
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(&b, "warning: %s: %s\n", w.Resource, w.Reason)
	}
	return b.String()
}
