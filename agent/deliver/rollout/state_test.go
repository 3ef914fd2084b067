package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// TestResourceState checks which accepted resources are known after a response, and after the last
// stream.
func TestResourceState(t *testing.T) {
	var s resourceState
	if s.hasAccepted() || s.acceptedForm(draft.RankCluster, "a") != nil || s.configured(draft.RankCluster, "a") != nil {
		t.Error("the empty state has resources")
	}
	s.accepted[draft.RankEndpoint] = resourcesNamed("a", "b", "c")
	s.cfg = &draft.Sealed{}
	s.cfg.Resources[draft.RankEndpoint] = resourcesNamed("a", "b", "d")
	got := s.afterResponse(draft.RankEndpoint, resourcesNamed("d"), []string{"b"}, nil)
	if want := []string{"a", "c", "d"}; !slices.EqualFunc(got, want, func(r *draft.Resource, name string) bool {
		return r.Name == name
	}) {
		t.Errorf("accepted: %v, want %q", got, want)
	}
	s.cfg.Resources[draft.RankEndpoint] = resourcesNamed("a")
	if got := s.afterResponse(draft.RankEndpoint, nil, nil, nil); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("accepted and not in the config: %v", got)
	}
	cfg := s.cfg
	if s.close(true); s.cfg != nil || s.previous != cfg || !s.hasAccepted() {
		t.Errorf("after the last stream: %+v", s)
	}
}

// TestRejectionState checks the bisection of a rejected response, retries, and notInForce.
func TestRejectionState(t *testing.T) {
	const rank = draft.RankCluster
	var s rejectionState
	s.rejected[rank] = map[string]*rejection{}
	list := resourcesNamed("a", "b", "c")
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
		s.rejected[rank][r.Name] = &rejection{resource: r, suspect: true}
	}
	s.bisect(rank, names)
	if got := len(s.trials[rank].wait); got != 2 || !s.pruneTrial(rank) || !s.isHeldBack(rank, s.rejected[rank]["a"]) {
		t.Errorf("%d groups: %+v", got, s.trials[rank])
	}
	for _, r := range list {
		if !s.isRejected(rank, r) {
			t.Errorf("%s is not rejected", r.Name)
		}
		s.forgetAccepted(rank, r, true)
	}
	if s.pruneTrial(rank) || len(s.rejected[rank]) != 0 {
		t.Errorf("after all were accepted: %+v", s.trials[rank])
	}

	due := time.Unix(60, 0)
	s.rejected[rank]["a"] = &rejection{resource: list[0], retry: retry{attempt: 1, at: due}}
	s.rejected[rank]["b"] = &rejection{resource: list[1], retry: retry{attempt: 1, at: due.Add(1)}}
	if next := s.nextRetry(); !next.Equal(due) {
		t.Errorf("the next retry is at %v", next)
	}
	s.withheld[rank] = map[string]*rejection{"b": {resource: list[1], check: true, unsent: true}}
	s.unsent[rank] = true
	if proxy, check := s.heldBy(rank); proxy != 1 || check != 1 || !s.notInForce(rank)["b"].check {
		t.Errorf("%d are rejected, %d are withheld", proxy, check)
	}
	if !s.leavesUnsent(rank, "b") || s.leavesUnsent(rank, "a") || !s.leavesUnsent(draft.RankEndpoint, "x") {
		t.Error("only the withheld resource, and what it may need, is left at the client")
	}
	if since := s.rejectedSince(rank, "a", 7); since != 7 || s.rejectedSince(rank, "a", 9) != 7 {
		t.Errorf("rejected since %d", since)
	}
	s.exclude(rank, "c")
	if !s.isExcluded(rank, "c") || s.isExcluded(rank, "a") {
		t.Errorf("excluded: %v", s.excluded[rank])
	}
	if s.reset(); len(s.rejected[rank]) != 0 || s.nextRetry() != (time.Time{}) {
		t.Errorf("after a reset: %+v", s.rejected)
	}
}

// TestDrainState checks when draining ends, and that the memory for it is bounded.
func TestDrainState(t *testing.T) {
	now := time.Unix(100, 0)
	form := draft.NewResource(draft.RankListener, "l", make([]byte, maxDraining/2))
	s := drainState{leaveUntil: now.Add(time.Hour), handovers: map[string]*handover{"x": {until: now.Add(time.Minute)}}}
	for i := range 3 {
		s.draining = append(s.draining, drainingListener{name: "l", form: form,
			until: now.Add(time.Duration(i) * time.Second)})
	}
	if s.trim(); len(s.draining) != 2 {
		t.Fatalf("%d forms are remembered", len(s.draining))
	}
	if next := s.next(now); !next.Equal(now.Add(time.Second)) || !s.handoverUntil(now).Equal(now.Add(time.Minute)) {
		t.Errorf("next: %v", next)
	}
	if forms := s.prune(now.Add(time.Second)); len(forms) != 1 || forms[0] != form {
		t.Errorf("forms: %v", forms)
	}
	if s.prune(now.Add(time.Minute)); !s.next(now.Add(time.Minute)).Equal(s.leaveUntil) {
		t.Errorf("next in the end: %v", s.next(now.Add(time.Minute)))
	}
	if !s.leavesStrays(draft.RankCluster, now) || s.leavesStrays(draft.RankListener, now) ||
		s.leavesStrays(draft.RankCluster, s.leaveUntil) {
		t.Error("an Envoy keeps unknown clusters, but no listeners, until the time has passed")
	}
}

// TestReplacedState checks which changes have caused a drain, and that the memory for it is
// bounded.
func TestReplacedState(t *testing.T) {
	now := time.Unix(100, 0)
	var s replacedState
	s.replaced("b", 2, 4, now)
	s.replaced("a", 4, 4, now.Add(time.Second)) // the same config
	s.replaced("c", 2, 6, now.Add(2*time.Second))
	s.unsure(6, now)
	p := Progress{Draining: s.drains}
	for _, c := range []struct {
		revision uint64
		want     string
		since    int
	}{{2, "", 0}, {3, "a b c", 2}, {4, "a b c", 2}, {5, "c", 2}, {6, "c", 2}, {7, "", 0}} {
		switch d := p.DrainOf(c.revision); {
		case d == nil && c.want == "":
		case d == nil || strings.Join(d.Listeners, " ") != c.want ||
			!d.Since.Equal(now.Add(time.Duration(c.since)*time.Second)):
			t.Errorf("revision %d: %+v, want %q", c.revision, d, c.want)
		}
	}
	if d := p.UnsureDrain(); d == nil || !d.Since.Equal(now) {
		t.Errorf("unsure: %+v", d)
	}
	if got := s.oldListeners(); len(got) != 3 || got[0].Listener != "a" || !got[0].Since.Equal(now.Add(time.Second)) {
		t.Errorf("listeners: %v", got)
	}
	for i := range maxReplaced + 1 {
		s.replaced(fmt.Sprint(i), 6, 7, now)
	}
	if d := s.drains[len(s.drains)-1]; d.Revision != 7 || d.Listeners != nil {
		t.Errorf("%d listeners of one drain are remembered", len(d.Listeners))
	}
	for i := range uint64(2 * maxDrains) {
		s.replaced("a", 7+i, 8+i, now)
	}
	if len(s.drains) != maxDrains {
		t.Errorf("%d drains are remembered", len(s.drains))
	}
	if s.expire(now.Add(2 * maxDrainAge)); len(s.drains)+len(s.replacedAt) != 0 {
		t.Errorf("after a day: %v", s.drains)
	}
}

// TestSyncState checks the ring of events, and the names in them.
func TestSyncState(t *testing.T) {
	var s syncState
	long := strings.Repeat("x", 2*maxEventName)
	for i := range maxEvents + 5 {
		s.add(api.Event{Count: i, Resources: []string{long}}, nil)
	}
	events := s.history()
	if len(events) != maxEvents || events[0].Count != 5 || events[maxEvents-1].Count != maxEvents+4 {
		t.Errorf("%d events from %d to %d", len(events), events[0].Count, events[len(events)-1].Count)
	}
	if name := events[0].Resources[0]; len(name) > maxEventName+len("…") {
		t.Errorf("a name has %d bytes", len(name))
	}
	w := &typeWatch{rank: draft.RankRoute}
	s.add(api.Event{}, &Response{w: w, Send: resourcesNamed("a"), Removed: []string{"b"}})
	if e := s.history()[maxEvents-1]; e.TypeURL != draft.TypeRoute || !slices.Equal(e.Resources, []string{"a", "b"}) {
		t.Errorf("event of a response: %+v", e)
	}
	s.status(draft.RankRoute).SentVersion = "1"
	s.sentBy[draft.RankRoute], s.acceptedRevision[draft.RankRoute] = w, 3
	s.leave(&[draft.NumTypes]*typeWatch{draft.RankRoute: w})
	if s.sentBy[draft.RankRoute] != nil || s.status(draft.RankRoute).SentVersion != "1" {
		t.Error("a stream that ends takes its watch with it, and no status")
	}
	if s.reset(); s.acceptedRevision[draft.RankRoute] != 0 || s.types[draft.RankRoute] != nil {
		t.Error("a reset leaves a status")
	}
}
