package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// line sorts the connected proxies in the order in which they are served. Those in behind have a
// config, and the least recently updated comes first. Those in waiting have had no config since
// they connected; the least recently processed comes first, and the longest waiting of those never
// processed.
func (p *pass) line() {
	r := p.r
	since := r.o.Publisher.Waiting()
	p.connected = r.o.Publisher.Connected()
	pass := func(key node.Key) uint64 {
		if s := r.proxies[key]; s != nil {
			return s.pass
		}
		return 0
	}
	for _, key := range p.connected {
		if s := r.proxies[key]; s != nil {
			s.seen, s.left = p.now, time.Time{}
		}
		if _, waits := since[key]; waits {
			p.waiting = append(p.waiting, key)
		} else {
			p.behind = append(p.behind, key)
		}
	}
	slices.SortStableFunc(p.behind, func(a, b node.Key) int { return cmp.Compare(pass(a), pass(b)) })
	slices.SortStableFunc(p.waiting, func(a, b node.Key) int {
		return cmp.Or(cmp.Compare(pass(a), pass(b)), since[a].Compare(since[b]))
	})
	p.forgetGone()
}

// serve derives the connected proxies in slices. In each slice, proxies that are behind are served
// and published first, then waiting proxies for the same time, so that neither blocks the other. It
// reports whether all were served before cut returned true.
func (p *pass) serve(cut func() bool, slice time.Duration) (whole bool) {
	for {
		p.serveSlice(&p.behind, slice)
		if len(p.waiting) > 0 {
			p.flushSome()
			p.serveSlice(&p.waiting, slice)
		}
		if len(p.behind)+len(p.waiting) == 0 {
			return true
		}
		p.flushSome()
		if cut() {
			return false
		}
	}
}

// serveSlice serves proxies of a list until the slice ends, but at least one.
func (p *pass) serveSlice(list *[]node.Key, slice time.Duration) {
	until := time.Now().Add(slice)
	for len(*list) > 0 {
		key := (*list)[0]
		*list = (*list)[1:]
		p.r.busy.Store(p.r.o.Now().UnixNano())
		p.proxy(key)
		if !time.Now().Before(until) {
			return
		}
	}
}

// flushSome publishes finished configs within a pass.
func (p *pass) flushSome() {
	if len(p.publish) == 0 {
		return
	}
	var problems []api.Problem
	if last := p.r.last.Load(); last != nil {
		problems = last.Problems // problems of this pass are known only at its end
	}
	p.flush(problems, p.r.o.Now())
}

// proxy derives one proxy and records the config to publish.
func (p *pass) proxy(key node.Key) {
	s := p.r.proxies[key]
	if s == nil {
		s = &proxyState{seen: p.now}
	}
	if p.awaited[key.ID] {
		return
	}
	if p.refuse(key, s) {
		return
	}
	if ref, err := node.ParseRef(key.ID); err == nil && p.r.o.Blocked != nil && p.r.o.Blocked(key, p.set.Get(ref.Key())) {
		p.publish[key] = rollout.Config{Keep: true, Revision: p.revision, LastStream: p.lastStream}
		return
	}
	s.pass, s.problems, s.stale = p.r.passes, nil, status.Stale{}
	if known := p.generate(p.meshes, key, s); !known {
		p.r.forget(key) // do not store state for arbitrary node IDs
		p.publish[key] = rollout.Config{Revision: p.revision, LastStream: p.lastStream}
		return
	}
	p.r.proxies[key] = s
	if s.proxy == nil {
		p.publish[key] = rollout.Config{Keep: true, Revision: p.revision, LastStream: p.lastStream}
		return
	}
	p.check(key, s)
	if s.sent != nil && !s.waiting {
		p.publish[key] = rollout.Config{Sealed: s.sent.Sealed, Revision: s.revision, LastStream: p.lastStream,
			Withheld: s.verdict.withheld, Substituted: s.verdict.substituted, Listeners: s.verdict.listeners}
	}
}
