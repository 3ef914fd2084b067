package reconcile

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// refusal is that of a proxy for which there was no memory.
type refusal struct {
	at     time.Time // the last one
	reason string
}

// refusedFor is how long a refused proxy is listed after its client has asked last. Envoy asks
// again after 30 s at most.
const refusedFor = 2 * time.Minute

// refuse refuses a proxy that has no config yet where there is no memory for one more. It reports
// whether it did.
func (p *pass) refuse(key node.Key, s *proxyState) bool {
	if p.r.o.Room == nil || s.proxy != nil || !p.exists(key) {
		return false
	}
	err := p.r.o.Room(p.r.shed)
	if err == nil {
		delete(p.r.refused, key)
		return false
	}
	p.r.refused[key] = refusal{p.r.o.Now(), err.Error()}
	p.publish[key] = rollout.Config{Refused: err, Revision: p.revision, LastStream: p.lastStream}
	return true
}

// exists says whether a node is stored: what is not known is told that, and is not what takes
// memory.
func (p *pass) exists(key node.Key) bool {
	ref, err := node.ParseRef(key.ID)
	return err == nil && p.set.Get(ref.Key()) != nil
}

// reportRefused adds the proxies that are refused to the problems.
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
	p.r.unroomed.Store(int64(len(p.r.refused)))
}

// Refused returns how many proxies are refused since there is no memory for them.
func (r *Reconciler) Refused() int { return int(r.unroomed.Load()) }

// Shed has the next pass, which is asked for, give up what is remembered to save work.
func (r *Reconciler) Shed() {
	r.shedding.Store(true)
	r.Trigger()
}

// shed gives up what is remembered to save work, and all that is no longer in use.
func (r *Reconciler) shed() {
	r.checker = &check.Checker{}
	r.memo.Sweep()
	r.offered.Store(nil)
	for key, s := range r.proxies {
		if !s.left.IsZero() && r.o.Now().Sub(s.left) >= r.o.Keep/4 { // an Envoy that has lost its stream is back by then
			r.forget(key)
		}
	}
}

// leave forgets the proxies that have been gone for long enough.
func (p *pass) leave() {
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) {
			continue
		}
		if s.left.IsZero() {
			s.left = p.now
		}
		if at := s.left.Add(p.r.o.Keep); p.now.Before(at) {
			p.wake(at)
		} else {
			p.r.forget(key)
		}
	}
}

// wake asks for a pass at a time.
func (p *pass) wake(at time.Time) {
	if p.leaveAt.IsZero() || at.Before(p.leaveAt) {
		p.leaveAt = at
	}
}
