package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// causeUnknown is the cause of a refused stream whose node id matches no resource.
const causeUnknown = "unknown"

// refused returns the clients that are refused now.
func (t *Tracker) refused() []api.RefusedStream {
	if t.Parts.Refused == nil {
		return nil
	}
	return t.Parts.Refused().Streams
}

// Refusals returns the refused streams. The list has only clients whose proxies are visible; a
// client whose node id names no proxy counts as the proxy with the key "Envoy". Only a view of the
// whole has the latest refusal of all.
func (t *Tracker) Refusals(v *View) api.Refusals {
	var out api.Refusals
	if t.Parts.Refused != nil {
		out = t.Parts.Refused()
	}
	streams := []api.RefusedStream{}
	for _, r := range out.Streams {
		if v.Whole || v.sees(refusedKey(&r)) {
			r.Command = refusedCommand(&r)
			streams = append(streams, r)
		}
	}
	if out.Streams = streams; !v.Whole {
		out.Peer, out.NodeID, out.Reason = "", "", ""
	}
	return out
}

// refusedKey returns the key of the proxy that a refused client wants to be. A client whose node id
// names no proxy has the kind Envoy, and its node id, user, or address as the name.
func refusedKey(r *api.RefusedStream) resource.Key {
	if ref, err := node.ParseRef(r.NodeID); err == nil {
		return ref.Key()
	}
	if r.NodeID != "" {
		return resource.Key{Kind: kindEnvoy, Name: r.NodeID}
	}
	return resource.Key{Kind: kindEnvoy, Name: r.User}
}

// kindEnvoy is the kind in the key of a client whose node id names no proxy.
const kindEnvoy = "Envoy"

// refusedState returns the state of a proxy whose client is refused, and the reason.
func refusedState(r *api.RefusedStream) (state, reason string) {
	if r.Cause == causeUnknown {
		ref, _ := node.ParseRef(r.NodeID)
		return api.StateUnknown, unknownReason(r.NodeID, ref.Type)
	}
	return api.StateRefused, fmt.Sprintf("its Envoy (%s) has been refused since %s, %s: %s", r.User,
		r.Since.UTC().Format(time.RFC3339), plural.Count(int(r.Count), "time"), r.Reason) // #nosec G115 -- a count
}

// unknownReason returns why a client with this node id has no config.
func unknownReason(id string, t node.Type) string {
	return fmt.Sprintf("node id %q asks for a %s that does not exist; apply it, or fix the node id in the bootstrap", id,
		t.Kind())
}

// refusedCommand returns the command that explains why a client is refused. The bootstrap of an
// Envoy in a pod is in its arguments.
func refusedCommand(r *api.RefusedStream) string {
	if p := r.Peer.Pod; p != nil {
		return fmt.Sprintf("kubectl get pod -n %s %s -o yaml", p.Namespace, p.Name)
	}
	out := "nearside check --bootstrap FILE"
	if r.Peer.IsUser() {
		out += fmt.Sprintf(" --user %d", r.Peer.UID)
	}
	return out
}

// refusedProblems returns a problem for each refused client. A client whose node id matches no
// resource is a problem of its proxy, whose state is unknown.
func refusedProblems(_ context.Context, f *Facts) (out []api.Problem) {
	near := nearest{set: f.Snap.Set()}
	for i := range f.Status.Refused.Streams {
		r := &f.Status.Refused.Streams[i]
		if r.Cause == causeUnknown {
			continue
		}
		k := refusedKey(r)
		reason := fmt.Sprintf("the Envoy of %s is refused: %s", r.User, r.Reason)
		if k.Kind == kindEnvoy && r.NodeID != "" {
			reason += near.of(resource.Key{Kind: kindDataplane, Name: r.NodeID})
		}
		out = append(out, api.Problem{Resource: k.String(), Severity: api.SeverityError, Check: api.ClassStreamRefused,
			Reason: reason, Command: refusedCommand(r)})
	}
	return out
}

// nearest finds resources with names that are similar to those of absent ones. It answers a limited
// number of questions, because each compares all names.
type nearest struct {
	set   *resource.Set
	asked int
}

const (
	maxNearestAsked = 10
	maxNearestNames = 3
)

// of returns a clause with the node ids that are nearest to a proxy, or "".
func (n *nearest) of(k resource.Key) string {
	if n.asked++; n.asked > maxNearestAsked {
		return ""
	}
	if len(n.set.Kind(k.Kind)) == 0 {
		return fmt.Sprintf("; no %s exists", k.Kind)
	}
	found := Nearest(n.set, k)
	if len(found) == 0 {
		return ""
	}
	return "; the nearest node id is " + strings.Join(found, " or ")
}

// Nearest returns the node ids that are nearest to a proxy that does not exist, at most 3. Without
// a mesh in the key, it compares only names.
func Nearest(set *resource.Set, k resource.Key) (found []string) {
	all := set.Kind(k.Kind)
	ids := make([]string, len(all)) // without the mesh for a name without one
	byID := map[string]string{}
	for i, r := range all {
		t := node.ProxyDataplane
		for _, zone := range []node.Type{node.ProxyEgress, node.ProxyIngress} {
			if zone.Kind() == k.Kind {
				t = zone
			}
		}
		full := node.Ref{Type: t, Mesh: r.Mesh, Name: r.Name}.NodeID()
		if ids[i] = full; k.Mesh == "" {
			ids[i] = r.Name
		}
		byID[ids[i]] = full
	}
	slices.Sort(ids)
	wanted := k.Name
	if k.Mesh != "" {
		wanted = k.Mesh + "." + k.Name
	}
	add := func(id string) {
		if id != "" && !slices.Contains(found, byID[id]) && len(found) < maxNearestNames {
			found = append(found, byID[id])
		}
	}
	add(strict.Nearest(wanted, ids))
	for _, id := range ids { // the same name in another mesh, or a pod of the same workload
		if _, name, _ := strings.Cut(byID[id], "."); name == k.Name || strings.HasPrefix(id, wanted+"-") {
			add(id)
		}
	}
	return found
}
