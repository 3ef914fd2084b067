package reconcile

import (
	"log/slog"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// countingServer counts calls of Progress.
type countingServer struct {
	rejects bool
	walks   int
}

func (s *countingServer) HasRejections() bool { return s.rejects }

func (s *countingServer) Progress() []rollout.Progress { s.walks++; return nil }

func (*countingServer) Attribute(draft.Rejection, []api.Blame, uint64) {}

// TestNoRejectionsNoWalk checks that clients are not examined if none rejects anything.
func TestNoRejectionsNoWalk(t *testing.T) {
	s, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server := &countingServer{}
	n := NewNackWatch(server, func() *status.Result { return &status.Result{} }, s, kinds.Registry(),
		slog.New(slog.DiscardHandler), func() {})
	for i, want := range []int{0, 0, 1, 2, 2} {
		server.rejects = want > server.walks
		if n.evaluate(t.Context()); server.walks != want {
			t.Errorf("look %d: the clients were examined %d times, want %d", i, server.walks, want)
		}
	}
}
