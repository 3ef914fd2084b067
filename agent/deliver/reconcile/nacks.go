package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// NackWatch determines the policies that caused rejections. It runs in parallel with the delivery
// of configs, for one proxy at a time, and is level-triggered. It evaluates a rejection again only
// if other policies select the proxy.
type NackWatch struct {
	server   nackServer
	last     func() *status.Result
	store    *store.Store
	registry *resource.Registry
	log      *slog.Logger
	trigger  chan struct{} // one slot
	decided  func()        // called after rejections that another config may avoid; must not block

	// Used only by the goroutine of Run.
	known map[node.Key][32]byte // fingerprint of the policies for which a node's rejections were evaluated
	// version of the form that a node rejects although it lacks policies, by resource
	instead map[node.Key]map[draft.ResourceID]string
}

// nackServer provides rejections. [rollout.Proxies] implements it.
type nackServer interface {
	HasRejections() bool
	Progress() []rollout.Progress
	Attribute(r draft.Rejection, blame []api.Blame, revision uint64)
}

// NewNackWatch returns a NackWatch. Run starts it. It calls decided, which must not block, when the
// next pass can leave policies out of a rejected resource.
func NewNackWatch(server nackServer, last func() *status.Result, s *store.Store, reg *resource.Registry,
	log *slog.Logger, decided func()) *NackWatch {
	return &NackWatch{server: server, last: last, store: s, registry: reg, log: log, decided: decided,
		trigger: make(chan struct{}, 1), known: map[node.Key][32]byte{},
		instead: map[node.Key]map[draft.ResourceID]string{}}
}

// Trigger requests an evaluation. It does not block.
func (n *NackWatch) Trigger() {
	select {
	case n.trigger <- struct{}{}:
	default: // already requested
	}
}

// Run evaluates rejections after each trigger until ctx ends.
func (n *NackWatch) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.trigger:
			n.evaluate(ctx)
		}
	}
}

// proved returns the rejections without suspected ones, which have no causes yet. The server
// triggers again when they are known.
func proved(list []draft.Rejection) []draft.Rejection {
	suspect := func(r draft.Rejection) bool { return r.Suspect }
	if !slices.ContainsFunc(list, suspect) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), suspect) // the list belongs to the server
}

// blamed caches results of one evaluation, because many proxies often reject the same.
type blamed struct {
	byKey  map[string]map[draft.ResourceID][]api.Blame // by blameWork.key
	fields map[string]string                           // see attribute.BlameQuestion
}

// evaluate evaluates all rejections without known causes.
func (n *NackWatch) evaluate(ctx context.Context) {
	if !n.server.HasRejections() {
		clear(n.known)
		clear(n.instead)
		return
	}
	// Read the progress before the result: configs are published after the result is set. A result
	// from before a slice has the revision of that slice, but not its configs.
	progress := n.server.Progress()
	last, snap := n.last(), n.store.Snapshot()
	if last == nil {
		return
	}
	found := &blamed{map[string]map[draft.ResourceID][]api.Blame{}, map[string]string{}}
	still := map[node.Key]bool{}
	for _, p := range progress {
		p.Rejected = proved(p.Rejected)
		if len(p.Rejected) == 0 {
			continue
		}
		still[p.Node] = true
		n.noteInstead(p.Node, p.Rejected)
		if ref, err := node.ParseRef(p.Node.ID); err == nil && ref.Type != node.ProxyDataplane {
			for _, r := range p.Rejected {
				n.server.Attribute(r, nil, last.Revision) // policies do not select zone proxies
			}
			continue
		}
		m := last.Meshes[p.Mesh]
		if m == nil || m.View.Dataplane(p.Name) == nil || p.Revision > last.Revision {
			continue // its config is not that of the last pass
		}
		match := m.Policies.Match(m.View.Dataplane(p.Name))
		if n.known[p.Node] == match.Fingerprint &&
			!slices.ContainsFunc(p.Rejected, func(r draft.Rejection) bool { return !r.Attributed }) {
			for _, r := range p.Rejected {
				n.server.Attribute(r, r.Blame, last.Revision) // unchanged
			}
			continue
		}
		began := time.Now()
		w := blameWork{p: p, mesh: m,
			config:      last.Proxies[generate.ProxyID{Mesh: p.Mesh, Name: p.Name, Flavor: p.Node.Flavor}],
			fingerprint: match.Fingerprint, revision: last.Revision, snap: snap}
		if done := n.findBlame(&w, found); done {
			n.known[p.Node] = match.Fingerprint
		}
		n.decided()
		// A policy that all proxies reject must not occupy a core while its fix is being applied.
		if !pause(ctx, min(time.Since(began), 100*time.Millisecond)) {
			return
		}
	}
	for key := range n.known {
		if !still[key] {
			delete(n.known, key)
		}
	}
	maps.DeleteFunc(n.instead, func(key node.Key, _ map[draft.ResourceID]string) bool { return !still[key] })
}

// noteInstead reports new rejections of forms that lack policies.
func (n *NackWatch) noteInstead(key node.Key, list []draft.Rejection) {
	var now map[draft.ResourceID]string
	changed := false
	for i := range list {
		r := &list[i]
		if !r.InsteadRejected {
			continue
		}
		if now == nil {
			now = map[draft.ResourceID]string{}
		}
		now[r.ID] = r.Instead.Version
		changed = changed || n.instead[key][r.ID] != r.Instead.Version
	}
	if n.instead[key] = now; changed {
		n.decided()
	}
}

// blameWork is one node whose rejections are evaluated.
type blameWork struct {
	p           rollout.Progress
	mesh        *generate.Mesh
	config      *generate.Proxy // for the client; nil where that is not known
	fingerprint [32]byte
	revision    uint64 // of mesh
	snap        *store.Snapshot
}

// key returns a key that is equal for equal rejections.
func (w *blameWork) key() string {
	var b strings.Builder
	b.Write(w.fingerprint[:])
	if w.config != nil && w.config.Build != nil {
		b.WriteString(w.config.Build.Version.String())
	}
	for _, r := range w.p.Rejected {
		fmt.Fprintf(&b, "%s %s %s %d ", r.ID.TypeURL, r.ID.Name, r.Resource.Version, r.Since)
		if r.Accepted != nil {
			b.WriteString(r.Accepted.Version)
		}
	}
	return b.String()
}

// findBlame attributes the rejections of a node, and reports whether all are attributed.
func (n *NackWatch) findBlame(w *blameWork, found *blamed) bool {
	key := w.key()
	blame, ok := found.byKey[key]
	if !ok {
		var err error
		blame, err = guard(n.log, "rejections of "+w.p.Node.ID, func() (map[draft.ResourceID][]api.Blame, error) {
			return attribute.FindBlame(attribute.BlameQuestion{
				Mesh: w.mesh, Name: w.p.Name, Flavor: w.p.Node.Flavor, Last: w.config, Rejected: w.p.Rejected,
				Decode: n.registry.DecodeOne, Fields: found.fields,
				Revision: func(k resource.Key) uint64 { rec, _ := w.snap.Get(k); return rec.Revision },
			})
		})
		if err != nil {
			n.log.Warn("cannot determine the policies that caused a rejection", "node", w.p.Node.ID, "error", err)
		}
		found.byKey[key] = blame
	}
	done := true
	for _, r := range w.p.Rejected {
		list, known := blame[r.ID]
		if !known && w.p.Revision < w.revision {
			done = false // it will get another config soon
			continue
		}
		n.server.Attribute(r, list, w.revision)
		n.report(r, list)
	}
	return done
}

// report logs the new causes of a rejection.
func (n *NackWatch) report(r draft.Rejection, blame []api.Blame) {
	if r.By != api.HeldByCheck && rollout.ReasonOfHost(r.Reason) {
		return // the cause is not a policy
	}
	for _, b := range api.Causes(blame) {
		if slices.ContainsFunc(r.Blame, func(o api.Blame) bool { return o.Type == b.Type && o.Name == b.Name }) {
			continue // already logged
		}
		message := "a proxy rejects the config from a policy"
		if r.By == api.HeldByCheck {
			message = "the config from a policy is withheld from a proxy"
		}
		n.log.Warn(message, "policy", resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String(),
			"field", b.Field, "evidence", b.Evidence, "node", r.Node.ID, "resource", r.ID.Name, "reason", r.Reason)
	}
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
