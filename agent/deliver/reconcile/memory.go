package reconcile

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// refusal is a proxy that was refused because of memory.
type refusal struct {
	at     time.Time // last refusal
	reason string
}

// refusedFor is how long a refused proxy is listed after the last request of its client. Envoy
// retries within 30 s.
const refusedFor = 2 * time.Minute

// refuse refuses a proxy without a config if there is no memory for it. It reports whether it did.
func (p *pass) refuse(key node.Key, s *proxyState) bool {
	if p.r.o.Admit == nil || s.proxy != nil || !p.exists(key) {
		return false
	}
	err := p.r.o.Admit(p.r.shed)
	if err == nil {
		delete(p.r.refused, key)
		return false
	}
	p.r.refused[key] = refusal{p.r.o.Now(), err.Error()}
	p.publish[key] = rollout.Config{Refused: err, Revision: p.revision, LastStream: p.lastStream}
	return true
}

// exists reports whether the resource of a node exists. Unknown nodes use no memory and get another
// error.
func (p *pass) exists(key node.Key) bool {
	ref, err := node.ParseRef(key.ID)
	return err == nil && p.set.Get(ref.Key()) != nil
}

// reportRefused adds a problem for each refused proxy.
func (p *pass) reportRefused() {
	now := p.r.o.Now()
	for key, x := range p.r.refused {
		ref, err := node.ParseRef(key.ID)
		if until := x.at.Add(refusedFor); err != nil || !now.Before(until) || !p.exists(key) {
			delete(p.r.refused, key)
		} else {
			p.problem(ref.Key(), api.SeverityError, "it is not served: "+x.reason)
			p.wake(until)
		}
	}
	p.r.refusedCount.Store(int64(len(p.r.refused)))
}

// Refused returns the number of proxies refused because of memory.
func (r *Reconciler) Refused() int { return int(r.refusedCount.Load()) }

// Shed makes the next pass drop caches, and requests it.
func (r *Reconciler) Shed() {
	r.shedding.Store(true)
	r.Trigger()
}

// shed drops caches and unused state.
func (r *Reconciler) shed() {
	r.checker = &check.Checker{}
	r.memo.Sweep()
	r.variantMemo.Sweep()
	r.offered.Store(nil)
	for key, s := range r.proxies {
		// an Envoy that lost its stream has reconnected by then
		if !s.left.IsZero() && r.o.Now().Sub(s.left) >= r.o.ForgetAfter/4 {
			r.forget(key)
		}
	}
}

// forgetGone drops proxies that have been disconnected for ForgetAfter.
func (p *pass) forgetGone() {
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) {
			continue
		}
		if s.left.IsZero() {
			s.left = p.now
		}
		if at := s.left.Add(p.r.o.ForgetAfter); p.now.Before(at) {
			p.wake(at)
		} else {
			p.r.forget(key)
		}
	}
}

// wake schedules a pass.
func (p *pass) wake(at time.Time) {
	if p.leaveAt.IsZero() || at.Before(p.leaveAt) {
		p.leaveAt = at
	}
}
