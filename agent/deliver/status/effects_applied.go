package status

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// examine finds the effects of policies for a situation, for a limited time.
func (t *Tracker) examine(ctx context.Context, x *situation, list []*resource.Resource) {
	if x.last == nil {
		return
	}
	x.verdicts, _ = t.effectsOf(ctx, x.last, list, effectTime)
	x.warnings = map[string][]string{}
	for _, p := range slices.Concat(x.last.Problems, t.targetProblems(ctx, &Facts{Last: x.last})) {
		if p.Severity == api.SeverityWarning {
			x.warnings[p.Resource] = append(x.warnings[p.Resource], p.Reason)
		}
	}
}

// effectsOf returns the effects of active policies, and the number of those that are not known in
// time.
func (t *Tracker) effectsOf(ctx context.Context, last *Result, list []*resource.Resource,
	atMost time.Duration) (out map[*resource.Resource]*effect.MeshVerdict, unknown int) {
	until := time.Now().Add(atMost)
	byMesh := map[string][]*resource.Resource{}
	for _, r := range list {
		if m := last.Meshes[r.Mesh]; m != nil && m.Policies != nil && effect.Acts(m.Policies, r) {
			byMesh[r.Mesh] = append(byMesh[r.Mesh], r)
		}
	}
	out = map[*resource.Resource]*effect.MeshVerdict{}
	for _, name := range slices.Sorted(maps.Keys(byMesh)) {
		for i, v := range t.effects.of(ctx, t.decode(), last.Meshes[name], byMesh[name], until) {
			if v != nil {
				out[byMesh[name][i]] = v
			} else {
				unknown++
			}
		}
	}
	return out, unknown
}

// decode returns the decoder of the registry, or nil.
func (t *Tracker) decode() decodeFunc {
	if t.Registry == nil {
		return nil
	}
	return t.Registry.DecodeOne
}

// effect adds the effect of a policy to its state.
func (x *situation) effect(r *resource.Resource, out *api.Applied) {
	warned := x.warnings[r.Key.String()]
	out.Effect, out.Warnings = api.EffectUnknown, slices.Concat(warned, out.Warnings)
	v := x.verdicts[r]
	if v == nil {
		return
	}
	if out.Effect = v.Effect; v.Lacking() {
		out.State, out.Reason = api.StateNoEffect, effect.Because(v.Warning(), warned)
		out.Warnings = slices.DeleteFunc(slices.Clone(out.Warnings), func(w string) bool {
			return strings.Contains(out.Reason, w)
		})
	}
}

// Lacking returns the policies without effect, of those whose effect is known in time.
func (t *Tracker) Lacking(ctx context.Context) map[resource.Key]bool {
	last, out := t.Last(), map[resource.Key]bool{}
	if last == nil {
		return out
	}
	effects, _ := t.effectsOf(ctx, last, activePolicies(last), listTime)
	for r, v := range effects {
		if v.Lacking() {
			out[r.Key] = true
		}
	}
	return out
}

// activePolicies returns the policies that the meshes of a result use, sorted by kind and name.
func activePolicies(last *Result) (out []*resource.Resource) {
	for _, m := range last.Meshes {
		if m.Policies != nil {
			out = append(out, effect.Active(m.Policies)...)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
	return out
}

// effectProblems returns the policies without effect.
func (t *Tracker) effectProblems(ctx context.Context, f *Facts) (out []api.Problem) {
	if f.Last == nil {
		return nil
	}
	t.effects.drop(f.Last.Meshes)
	list := activePolicies(f.Last)
	effects, unknown := t.effectsOf(ctx, f.Last, list, listTime)
	f.Unexamined = unknown
	for _, r := range list {
		v := effects[r]
		if v == nil || !v.Lacking() {
			continue
		}
		command := "nearside get " + r.Kind + " " + r.Name + " -m " + r.Mesh + " -o wide"
		if v.Dataplane != "" {
			command = "nearside explain policy " + r.Kind + "/" + r.Name + " -m " + r.Mesh + " --dataplane " + v.Dataplane
		}
		out = append(out, api.Problem{Resource: r.Key.String(), Severity: api.SeverityWarning, Check: api.ClassNoEffect,
			Reason: v.Warning(), Command: command})
	}
	return out
}
