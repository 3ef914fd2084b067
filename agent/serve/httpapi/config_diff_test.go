package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestDiffLeadsToShadowConfig checks for proxies of all inputs, with and without mTLS, that the
// diff of _config?shadow=true&include=diff, applied to the published config, gives the shown one.
// The last policy of each input is a shadow policy.
func TestDiffLeadsToShadowConfig(t *testing.T) {
	t.Parallel()
	inputs, each, wanted := kindtest.OwnInputs(t), 1, 100
	if testing.Short() {
		each, wanted = 10, 10
	} else if files, err := kindtest.ConformanceFiles(); err == nil && len(files) > 0 {
		inputs = append(inputs, kindtest.ConformanceInputs(t)...)
	}
	a, changed := start(t), map[bool]int{}
	keeper := identity.Open(identity.Options{Now: func() time.Time { return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) }})
	keeper.Begin()
	for i, in := range inputs {
		if i%each > 0 {
			continue
		}
		for _, secure := range []bool{false, true} {
			rs := withMTLS(t, in.Resources, secure)
			policy := lastPolicy(t, rs)
			if policy < 0 {
				continue
			}
			shadow := *rs[policy]
			shadow.Labels = maps.Clone(shadow.Labels)
			if shadow.Labels == nil {
				shadow.Labels = map[string]string{}
			}
			shadow.Labels["kuma.io/effect"] = "shadow"
			without := slices.Delete(slices.Clone(rs), policy, policy+1)
			rs = append(slices.Clone(without), &shadow)
			// One Envoy has an older config, without the second to last policy.
			older := without
			if i := lastPolicy(t, without); i >= 0 {
				older = slices.Delete(slices.Clone(without), i, i+1)
			}
			another := older
			if !secure {
				another = nil
			}
			for i, had := range [][]*resource.Resource{without, another} {
				changed[secure] += leadsToShadow(t, a, keeper, fmt.Sprintf("%s, mTLS %v, %d", in.Name, secure, i), rs, had)
			}
		}
	}
	if changed[false] < wanted || changed[true] < wanted {
		t.Errorf("%v diffs are not empty, want at least %d", changed, wanted)
	}
}

// leadsToShadow checks the diff of each proxy. had are the resources from which the published
// configs were generated; nil means that no Envoy is connected. It returns the number of diffs that
// are not empty.
func leadsToShadow(t *testing.T, a *testAPI, keeper *identity.Keeper, what string,
	rs, had []*resource.Resource) (changed int) {
	t.Helper()
	result := &status.Result{Meshes: map[string]*generate.Mesh{}, Published: map[node.Key]*generate.Proxy{}}
	set := resource.NewSet(rs)
	for _, r := range set.Kind("Mesh") {
		m, err := newMesh(set, r.Name, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		result.Meshes[r.Name] = m
		if had == nil {
			continue
		}
		was, err := newMesh(resource.NewSet(had), r.Name, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if mtls := m.View.Spec.MTLS; mtls != nil {
			if _, err := keeper.Mesh(r.Name, mtls); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for i, dp := range was.View.Dataplanes() {
			if i == 2 {
				break
			}
			in := generate.Input{Mesh: was, Name: dp.Name, Flavor: node.FlavorEnvoy}
			if m.View.Spec.MTLSEnabled() != nil {
				in.Secrets, err = keeper.Proxy(r.Name, dp.Name, m.View.ProxyTags(dp.Spec.(*resource.Dataplane)))
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if p, err := generate.Generate(in, nil, nil); err == nil {
				ref := node.Ref{Type: node.ProxyDataplane, Mesh: r.Name, Name: dp.Name}
				result.Published[node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy}] = p
			}
		}
	}
	a.last.Store(result)
	for _, m := range result.Meshes {
		for i, dp := range m.View.Dataplanes() {
			if i == 2 {
				break // the others have similar configs
			}
			at := "/meshes/" + m.View.Name + "/dataplanes/" + dp.Name + "/_config"
			published, shadow := a.do("GET", at, ""), a.do("GET", at+"?shadow=true&include=diff", "")
			if published.status != 200 || shadow.status != 200 {
				continue // the dataplane cannot be served
			}
			var was, is struct {
				XDS  json.RawMessage   `json:"xds"`
				Diff []json.RawMessage `json:"diff"`
			}
			if err := json.Unmarshal([]byte(published.body), &was); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(shadow.body), &is); err != nil {
				t.Fatal(err)
			}
			if len(is.Diff) > 0 {
				changed++
			}
			got, err := applied(was.XDS, shadow.body)
			if want := canonical(t, is.XDS); err != nil || got != want {
				t.Errorf("%s, %s: %v: the diff does not lead from the published config to the shown one:\n%s\nwant\n%s", what,
					dp.Name, err, got, want)
				return changed
			}
			if strings.Contains(shadow.body, "PRIVATE KEY") {
				t.Fatalf("%s, %s: the answer has a private key", what, dp.Name)
			}
		}
	}
	return changed
}

// applied returns the canonical form of a config after the diff in a document.
func applied(config json.RawMessage, document string) (string, error) {
	var with struct {
		Diff []struct {
			Op, Path, From string
			Value          json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(document), &with); err != nil {
		return "", err
	}
	var patch jsonpatch.Patch
	for _, o := range with.Diff {
		op := jsonpatch.Operation{Op: o.Op, Path: o.Path, From: o.From}
		if o.Value != nil {
			v, err := jsonpatch.Decode(o.Value)
			if err != nil {
				return "", err
			}
			op.Value = v
		}
		patch = append(patch, op)
	}
	doc, err := jsonpatch.Decode(config)
	if err != nil {
		return "", err
	}
	if doc, err = patch.Apply(doc); err != nil {
		return "", err
	}
	out, err := json.Marshal(doc)
	return string(out), err
}

func canonical(t *testing.T, document json.RawMessage) string {
	t.Helper()
	v, err := jsonpatch.Decode(document)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// withMTLS returns resources in which all meshes or none have mTLS.
func withMTLS(t *testing.T, rs []*resource.Resource, secure bool) (out []*resource.Resource) {
	t.Helper()
	var mtls *resource.MTLS
	if secure {
		m := decode(t, "{type: Mesh, name: m, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}")[0]
		mtls = m.Spec.(*resource.Mesh).MTLS
	}
	for _, r := range rs {
		if spec, ok := r.Spec.(*resource.Mesh); ok {
			copied, changed := *r, *spec
			changed.MTLS, copied.Spec = mtls, &changed
			r = &copied
		}
		out = append(out, r)
	}
	return out
}

// lastPolicy returns the index of the last policy that is not a shadow policy, or -1.
func lastPolicy(t *testing.T, rs []*resource.Resource) int {
	t.Helper()
	reg := registry(t)
	for i := len(rs) - 1; i >= 0; i-- {
		if d, known := reg.Lookup(rs[i].Kind); known && d.Policy && !rs[i].Shadow() {
			return i
		}
	}
	return -1
}
