package status

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// EffectOptions returns the options for one question of a user about the effects of policies.
// Answers are about what the Envoy of a dataplane has, if it is connected, and about the generated
// configs of others.
func (t *Tracker) EffectOptions(last *Result, mesh, dataplane string) effect.Options {
	o := effect.Question(t.decode())
	key := node.Key{ID: node.Ref{Type: node.ProxyDataplane, Mesh: mesh, Name: dataplane}.NodeID(),
		Flavor: node.FlavorEnvoy}
	published, stale := last.Published[key], last.Stale[key].Reason
	if published == nil {
		return o
	}
	progress := t.progressOf(key)
	if stale != "" && progress.Revision > 0 {
		stale += fmt.Sprintf("; the Envoy has revision %d", progress.Revision)
	}
	at := generate.ProxyID{Mesh: mesh, Name: dataplane, Flavor: node.FlavorEnvoy}
	o.Published = func(id generate.ProxyID) *generate.Proxy {
		if id != at {
			return nil
		}
		return published
	}
	o.Held = func(id generate.ProxyID) []draft.Rejection {
		if id != at {
			return nil
		}
		return progress.Rejected
	}
	o.Stale = func(id generate.ProxyID) string {
		if id != at {
			return ""
		}
		return stale
	}
	return o
}

// progressOf returns the progress of a client, or the zero value.
func (t *Tracker) progressOf(key node.Key) rollout.Progress {
	if t.Progress != nil {
		for _, p := range t.Progress() {
			if p.Node == key {
				return p
			}
		}
	}
	return rollout.Progress{}
}
