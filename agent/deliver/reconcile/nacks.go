package reconcile

import (
	"context"
	"fmt"
	"log/slog"
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

// NackWatch finds the policies behind what proxies reject. It works beside the delivery of configs,
// one proxy after the other, is triggered by level, and works a rejection out once: anew only when
// other policies select the proxy.
type NackWatch struct {
	server   nackServer
	last     func() *status.Result
	store    *store.Store
	registry *resource.Registry
	log      *slog.Logger
	trigger  chan struct{} // one slot

	// Of the goroutine that runs it.
	known map[node.Key][32]byte // fingerprint of the policies with which a node's rejections were worked out
}

// nackServer is where rejections come from; [rollout.Proxies] is one.
type nackServer interface {
	HasRejections() bool
	Progress() []rollout.Progress
	Attribute(r draft.Rejection, blame []api.Blame, revision uint64)
}

func NewNackWatch(server nackServer, last func() *status.Result, s *store.Store, reg *resource.Registry,
	log *slog.Logger) *NackWatch {
	return &NackWatch{server: server, last: last, store: s, registry: reg, log: log,
		trigger: make(chan struct{}, 1), known: map[node.Key][32]byte{}}
}

// Trigger asks for a look soon. It never blocks.
func (n *NackWatch) Trigger() {
	select {
	case n.trigger <- struct{}{}:
	default: // one is asked for already
	}
}

// Run looks whenever it is triggered, until ctx ends.
func (n *NackWatch) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.trigger:
			n.look(ctx)
		}
	}
}

// proved returns the rejections without those that are only suspected: nobody is blamed for these.
// The server triggers another look when more is known.
func proved(list []draft.Rejection) []draft.Rejection {
	suspect := func(r draft.Rejection) bool { return r.Suspect }
	if !slices.ContainsFunc(list, suspect) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), suspect) // the list is the server's
}

// blamed is what was found in one look: many proxies often reject the same.
type blamed struct {
	alike  map[string]map[draft.ResourceID][]api.Blame // by blameWork.key
	fields map[string]string                           // of attribute.BlameQuestion
}

// look works out what is not worked out yet.
func (n *NackWatch) look(ctx context.Context) {
	if !n.server.HasRejections() {
		clear(n.known)
		return
	}
	// Before the result: what was published of it was made by then. A result from before a slice has
	// that slice's revision, and not its configs.
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
		if ref, err := node.ParseRef(p.Node.ID); err == nil && ref.Type != node.ProxyDataplane {
			for _, r := range p.Rejected {
				n.server.Attribute(r, nil, last.Revision) // no policy selects it
			}
			continue
		}
		m := last.Meshes[p.Mesh]
		if m == nil || m.View.Dataplane(p.Name) == nil || p.Revision > last.Revision {
			continue // what it has is not, or no longer, what the last pass has made
		}
		match := m.Policies.Match(m.View.Dataplane(p.Name))
		if n.known[p.Node] == match.Fingerprint &&
			!slices.ContainsFunc(p.Rejected, func(r draft.Rejection) bool { return !r.Attributed }) {
			for _, r := range p.Rejected {
				n.server.Attribute(r, r.Blame, last.Revision) // still so
			}
			continue
		}
		began := time.Now()
		w := blameWork{p: p, mesh: m, made: last.Proxies[generate.ProxyID{Mesh: p.Mesh, Name: p.Name, Flavor: p.Node.Flavor}],
			fingerprint: match.Fingerprint, revision: last.Revision, snap: snap}
		if done := n.workOut(&w, found); done {
			n.known[p.Node] = match.Fingerprint
		}
		// A policy that all proxies reject must not keep a core busy while a better one is on its way.
		if !pause(ctx, min(time.Since(began), 100*time.Millisecond)) {
			return
		}
	}
	for key := range n.known {
		if !still[key] {
			delete(n.known, key)
		}
	}
}

// blameWork is one node whose rejections are to be worked out.
type blameWork struct {
	p           rollout.Progress
	mesh        *generate.Mesh
	made        *generate.Proxy // for the client; nil where that is not known
	fingerprint [32]byte
	revision    uint64 // that mesh was derived from
	snap        *store.Snapshot
}

// key is the same for rejections that are alike.
func (w *blameWork) key() string {
	var b strings.Builder
	b.Write(w.fingerprint[:])
	if w.made != nil && w.made.Build != nil {
		b.WriteString(w.made.Build.Version.String())
	}
	for _, r := range w.p.Rejected {
		fmt.Fprintf(&b, "%s %s %s %d ", r.ID.TypeURL, r.ID.Name, r.Resource.Version, r.Since)
		if r.Accepted != nil {
			b.WriteString(r.Accepted.Version)
		}
	}
	return b.String()
}

// workOut attributes the rejections of a node and reports whether all of them are.
func (n *NackWatch) workOut(w *blameWork, found *blamed) bool {
	key := w.key()
	blame, ok := found.alike[key]
	if !ok {
		var err error
		blame, err = guard(n.log, "rejections of "+w.p.Node.ID, func() (map[draft.ResourceID][]api.Blame, error) {
			return attribute.FindBlame(attribute.BlameQuestion{
				Mesh: w.mesh, Name: w.p.Name, Flavor: w.p.Node.Flavor, Made: w.made, Rejected: w.p.Rejected,
				Decode: n.registry.DecodeOne, Fields: found.fields,
				Revision: func(k resource.Key) uint64 { rec, _ := w.snap.Get(k); return rec.Revision },
			})
		})
		if err != nil {
			n.log.Warn("the policies behind a rejection cannot be found", "node", w.p.Node.ID, "error", err)
		}
		found.alike[key] = blame
	}
	done := true
	for _, r := range w.p.Rejected {
		list, known := blame[r.ID]
		if !known && w.p.Revision < w.revision {
			done = false // it is about to get another config
			continue
		}
		n.server.Attribute(r, list, w.revision)
		n.report(r, list)
	}
	return done
}

// report logs whom a rejection is put down to.
func (n *NackWatch) report(r draft.Rejection, blame []api.Blame) {
	if r.By != api.HeldByCheck && rollout.ReasonOfHost(r.Reason) {
		return // no policy is its cause
	}
	for _, b := range api.Causes(blame) {
		if slices.ContainsFunc(r.Blame, func(o api.Blame) bool { return o.Type == b.Type && o.Name == b.Name }) {
			continue // it was known before
		}
		message := "a proxy rejects what a policy makes"
		if r.By == api.HeldByCheck {
			message = "what a policy makes is withheld from a proxy"
		}
		n.log.Warn(message, "policy", resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}.String(),
			"field", b.Field, "evidence", b.Evidence, "node", r.Node.ID, "resource", r.ID.Name, "reason", r.Reason)
	}
}

// pause waits, and reports false when ctx has ended meanwhile.
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
