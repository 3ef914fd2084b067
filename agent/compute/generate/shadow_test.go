package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

const shadowed = "labels: {kuma.io/effect: shadow}, "

// drawnPolicies draws policies of the pool and legacy policies. It inserts label before each spec.
func drawnPolicies(r *rapid.T, prefix, label string) string {
	var b strings.Builder
	for i := range rapid.IntRange(0, 5).Draw(r, prefix) {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if rapid.IntRange(0, 5).Draw(r, "legacy") == 0 {
			fmt.Fprintf(&b, "{type: Timeout, mesh: default, name: %s, %ssources: [{match: {kuma.io/service: '*'}}], "+
				"destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: %ds}}\n---\n", name, label, i+1)
			continue
		}
		doc := pooled(name, rapid.IntRange(0, len(pool)-1).Draw(r, "kind"),
			rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: web}", "{kind: MeshService, name: svc-1}"}).
				Draw(r, "target"),
			rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: svc-1}"}).Draw(r, "service"))
		b.WriteString(strings.Replace(doc, "spec:", label+"spec:", 1))
	}
	return b.String()
}

// TestShadowPolicies adds shadow policies to active ones and checks that every proxy's config is
// reused. In the shadow mesh they have the same effect as active policies.
func TestShadowPolicies(t *testing.T) {
	base := bigMesh(3, 0)
	rapid.Check(t, func(r *rapid.T) {
		real, shadow := drawnPolicies(r, "real", ""), drawnPolicies(r, "shadow", shadowed)
		memo := generate.NewMemo()
		m := meshOf(t, slices.Concat(base, decoded(t, real)), nil)
		with := meshOf(t, slices.Concat(base, decoded(t, real+shadow)), m)
		live := meshOf(t, slices.Concat(base, decoded(t, real+strings.ReplaceAll(shadow, shadowed, ""))), with)
		if shadow == "" && with.Shadow() != with {
			r.Error("without shadow policies there is another mesh")
		}
		if twice := with.Shadow(); twice.Shadow() != twice {
			r.Error("shadow policies that act already act again")
		}
		for _, d := range with.View.Dataplanes() {
			before := proxyOf(t, m, d.Name, nil, memo)
			after := proxyOf(t, with, d.Name, before, memo)
			if after.Sealed != before.Sealed {
				r.Errorf("%s is made anew for shadow policies\n%s---\n%s", d.Name, real, shadow)
			}
			if fresh := proxyOf(t, with, d.Name, nil, nil); fresh.Sealed.Versions != before.Sealed.Versions {
				r.Errorf("shadow policies change the bytes of %s\n%s---\n%s", d.Name, real, shadow)
			}
			if !slices.Equal(after.Warnings, before.Warnings) {
				r.Errorf("shadow policies bring warnings about %s: %v", d.Name, after.Warnings)
			}
			counted, without := proxyOf(t, with.Shadow(), d.Name, after, memo), proxyOf(t, live, d.Name, after, memo)
			if counted.Sealed.Versions != without.Sealed.Versions || len(generate.Difference(counted, without)) > 0 {
				r.Errorf("%s: without the label the bytes are others than with shadow policies counted in\n%s---\n%s",
					d.Name, real, shadow)
			}
			if !slices.Equal(counted.Warnings, without.Warnings) {
				r.Errorf("%s: the warnings are %v, and without the label %v", d.Name, counted.Warnings, without.Warnings)
			}
		}
	})
}
