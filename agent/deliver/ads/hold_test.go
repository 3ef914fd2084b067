package ads_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// progress returns the progress of a node.
func (a *agent) progress(id string) rollout.Progress {
	a.t.Helper()
	for _, p := range a.Progress() {
		if p.Node.ID == id {
			return p
		}
	}
	a.t.Fatalf("no progress of %s", id)
	return rollout.Progress{}
}

// reached waits until a node has answered all of a revision.
func (a *agent) reached(id string, revision uint64) rollout.Progress {
	a.t.Helper()
	a.wait(func() bool { return a.progress(id).Answered >= revision })
	return a.progress(id)
}

// TestHeldBack: after a listener is rejected, all other changes are still delivered and
// acknowledged, with the listener's last accepted bytes. The rejected bytes are never sent again,
// and the next good bytes are.
func TestHeldBack(t *testing.T) {
	for _, kind := range []string{"delta", "sotw"} {
		t.Run(kind, func(t *testing.T) {
			a := serving(t, config("CDS:c=1", "LDS:a=1", "LDS:bad=1"))
			var want func(delta, sotw string)
			var nack func(delta, sotw, reason string)
			if kind == "delta" {
				c := a.delta("default.web")
				c.subscribe(cds)
				c.subscribe(lds)
				want = func(line, _ string) { t.Helper(); c.wantAck(line) }
				nack = func(line, _, reason string) { t.Helper(); c.nack(c.want(line), reason) }
			} else {
				c := a.sotw(nodeOf("default.web"))
				c.ask(cds)
				c.ask(lds)
				want = func(_, line string) { t.Helper(); c.wantAck(line) }
				nack = func(_, line, reason string) { t.Helper(); c.nack(c.want(line), reason) }
			}
			want("CDS c=1", "CDS 1")
			want("LDS a=1 bad=1", "LDS 1 1")
			a.push(config("CDS:c=1", "LDS:a=1", "LDS:bad=2"))
			nack("LDS bad=2", "LDS 1 2", "Error adding/updating listener(s) bad: nonsense")
			a.push(config("CDS:c=2", "LDS:a=1", "LDS:bad=2"))
			want("CDS c=2", "CDS 2")
			a.push(config("CDS:c=2", "LDS:a=2", "LDS:bad=2"))
			want("LDS a=2 bad=1", "LDS 2 1") // a is sent again because its response was rejected
			a.push(config("CDS:c=2", "LDS:a=3", "LDS:bad=2"))
			want("LDS a=3", "LDS 3 1")
			p := a.reached("default.web", 4)
			if len(p.Rejected) != 1 || p.Rejected[0].ID != (draft.ResourceID{TypeURL: lds, Name: "bad"}) ||
				p.Rejected[0].Since != 0 || p.Rejected[0].MadeAt != 1 {
				t.Errorf("rejected: %+v", p.Rejected)
			}
			if ts := typeStatus(t, a.status("default.web"), lds); ts.NACK != nil || len(ts.Held) != 1 ||
				ts.AckedVersion != ts.SentVersion {
				t.Errorf("status: %+v", ts)
			}
			a.push(config("CDS:c=2", "LDS:a=3", "LDS:bad=3"))
			want("LDS bad=3", "LDS 3 3")
			if p := a.reached("default.web", 5); len(p.Rejected) != 0 {
				t.Errorf("rejected after the good one: %+v", p.Rejected)
			}
		})
	}
}

// TestHeldBackKeepsItsClusters: while a rejected listener keeps its old form, the cluster to which
// it refers is retained with its endpoints, although the config no longer has them. They are
// removed when the listener changes.
func TestHeldBackKeepsItsClusters(t *testing.T) {
	a := serving(t, config("CDS:old=1", "EDS:old=old.1", "CDS:other=1", "LDS:l=l.old"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS old=1 other=1")
	c.subscribe(eds, "old")
	c.wantAck("EDS old=old.1")
	c.subscribe(lds)
	c.wantAck("LDS l=l.old")
	a.push(config("CDS:new=1", "LDS:l=l.new"))
	c.wantAck("CDS new=1")
	c.nack(c.want("LDS l=l.new"), "l: no")
	a.push(config("CDS:new=1", "LDS:l=l.new", "LDS:m=m.new"))
	c.wantAck("LDS l=l.old m=m.new")
	c.wantAck("CDS -other") // old is retained
	if p := a.reached("default.web", 2); len(p.Rejected) != 1 || p.Rejected[0].Accepted == nil {
		t.Errorf("progress: %+v", p)
	}
	// A restarted Envoy gets both.
	d := a.delta("default.web")
	d.subscribe(cds)
	d.wantAck("CDS new=1 old=1")
	d.subscribe(eds, "old")
	d.wantAck("EDS old=old.1")
	d.subscribe(lds)
	d.wantAck("LDS l=l.old m=m.new")
	a.push(config("CDS:new=1", "LDS:l=l.new2", "LDS:m=m.new"))
	d.wantAck("LDS l=l.new2")
	d.wantAck("CDS -old")
}

// TestMissingClusterComes: a listener that was rejected because a cluster was missing is retried
// when that cluster arrives, and not when another one does.
func TestMissingClusterComes(t *testing.T) {
	a := serving(t, config("CDS:c=1", "LDS:l=l.1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS c=1")
	c.subscribe(lds)
	c.wantAck("LDS l=l.1")
	a.push(config("CDS:c=1", "LDS:l=l.wanted"))
	c.nack(c.want("LDS l=l.wanted"), "l: unknown cluster wanted")
	a.push(config("CDS:c=1", "CDS:zz=1", "LDS:l=l.wanted"))
	c.wantAck("CDS zz=1")
	a.push(config("CDS:c=2", "CDS:zz=1", "LDS:l=l.wanted"))
	c.wantAck("CDS c=2")
	a.push(config("CDS:c=2", "CDS:zz=1", "CDS:wanted=1", "LDS:l=l.wanted"))
	c.wantAck("CDS wanted=1")
	c.wantAck("LDS l=l.1") // l is sent again because its response was rejected
	c.wantAck("LDS l=l.wanted")
	if p := a.reached("default.web", 4); len(p.Rejected) != 0 {
		t.Errorf("rejected: %+v", p.Rejected)
	}
}

// TestProgress follows a revision from its publication to the client's answer.
func TestProgress(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	changed, stop := a.Watch()
	defer stop()
	until := func(what string, cond func(rollout.Progress) bool) {
		t.Helper()
		for !cond(a.progress("default.web")) {
			select {
			case <-changed:
			case <-t.Context().Done():
				t.Fatal(what)
			}
		}
	}
	c := a.delta("default.web")
	c.subscribe(lds)
	resp := c.want("LDS l=1")
	until("sent", func(p rollout.Progress) bool { return len(p.Unanswered) == 1 })
	c.ack(resp)
	until("answered", func(p rollout.Progress) bool { return len(p.Unanswered) == 0 })
	a.push(config("LDS:l=2")) // revision 1
	resp = c.want("LDS l=2")
	p := a.progress("default.web")
	if p.Revision != 1 || p.Answered != 0 || !slices.Equal(p.Unanswered, []string{"listener"}) || p.SentAt.IsZero() {
		t.Errorf("sent: %+v", p)
	}
	c.ack(resp)
	until("answered", func(p rollout.Progress) bool { return p.Answered == 1 && len(p.Unanswered) == 0 })
	a.push(config("LDS:l=2")) // no change for this proxy, so it counts as answered at once
	if p := a.progress("default.web"); p.Revision != 2 || p.Answered != 2 {
		t.Errorf("without a change: %+v", p)
	}
	a.push(config("LDS:l=3"))
	c.nack(c.want("LDS l=3"), "no")
	until("rejected", func(p rollout.Progress) bool { return p.Answered == 3 && len(p.Rejected) == 1 })
	if r := a.progress("default.web").Rejected[0]; r.Since != 2 || r.MadeAt != 3 || r.Accepted == nil ||
		bodyOf(lds, r.Accepted.Body()) != "2" || bodyOf(lds, r.Resource.Body()) != "3" {
		t.Errorf("rejection: %+v", r)
	}
	// After a reconnect, a proxy has answered nothing.
	if err := c.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	until("gone", func(p rollout.Progress) bool { return p.State == api.StateDisconnected })
	d := a.delta("default.web")
	d.subscribe(lds)
	d.want("LDS l=2") // not the rejected form
	if p := a.progress("default.web"); p.Answered != 0 || p.Revision != 3 || p.State != api.StateServing {
		t.Errorf("back: %+v", p)
	}
}

// TestEnvoyAnswersWithItsListeners: Envoy requests its clusters first. It has not answered a
// revision before it has also requested listeners.
func TestEnvoyAnswersWithItsListeners(t *testing.T) {
	a := serving(t, config("CDS:c=1", "LDS:l=1"))
	a.push(config("CDS:c=1", "LDS:l=1"))
	n := nodeOf("default.web")
	n.UserAgentName = "envoy"
	c := deltaOn(t, a.dial(), n)
	c.subscribe(cds)
	c.wantAck("CDS c=1")
	c.subscribe(rds, "x")
	c.wantAck("RDS -x")
	c.subscribe(rds, "y")
	c.wantAck("RDS -y")
	if p := a.progress("default.web"); p.Answered != 0 {
		t.Errorf("answered %d without listeners", p.Answered)
	}
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	a.reached("default.web", 1)
}

// TestAttribute: the attributed cause of a rejection appears in the status, unless the rejection is
// already over.
func TestAttribute(t *testing.T) {
	a := serving(t, config("LDS:l=1", "LDS:m=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1 m=1")
	a.push(config("LDS:l=2", "LDS:m=2"))
	c.nack(c.want("LDS l=2 m=2"), "l and m")
	a.wait(func() bool { return len(a.progress("default.web").Rejected) == 2 })
	rejected := a.progress("default.web").Rejected
	blame := func(names ...string) (out []api.Blame) {
		for _, n := range names {
			out = append(out,
				api.Blame{Type: "MeshTimeout", Mesh: "default", Name: n, Evidence: api.BlameShapes, Paths: []string{}})
		}
		return out
	}
	a.Attribute(rejected[0], blame("p", "q"), 7)
	a.Attribute(rejected[1], blame("r", "p"), 7)
	ts := typeStatus(t, a.status("default.web"), lds)
	named := func(list []api.Blame) string {
		var s []string
		for _, b := range list {
			s = append(s, b.Name)
		}
		return strings.Join(s, " ")
	}
	if got := fmt.Sprint(named(ts.Held[0].Policies), ", ", named(ts.Held[1].Policies), ", ",
		named(ts.NACK.Policies)); got != "p q, r p, p r q" {
		t.Errorf("policies: %s", got)
	}
	for _, r := range a.progress("default.web").Rejected {
		if !r.Attributed || r.AttributedAt != 7 {
			t.Errorf("not attributed: %+v", r)
		}
	}
	a.push(config("LDS:l=3", "LDS:m=2"))
	a.Attribute(rejected[0], blame("late"), 8)
	if held := typeStatus(t, a.status("default.web"), lds).Held; len(held) != 1 || held[0].Name != "m" ||
		named(held[0].Policies) != "r p" {
		t.Errorf("held: %+v", held)
	}
	a.Attribute(draft.Rejection{Node: node.Key{ID: "default.nobody"}, ID: rejected[0].ID, Resource: &draft.Resource{}},
		nil, 0)
	a.Attribute(draft.Rejection{Node: web, ID: draft.ResourceID{TypeURL: "nothing"}, Resource: &draft.Resource{}}, nil,
		0)
}
