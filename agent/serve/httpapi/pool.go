package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

const (
	// poolTime bounds the wait for the answer of a member.
	poolTime = 3 * time.Second
	// poolEvery is how long an answer about this node is reused.
	poolEvery = 3 * time.Second
)

// poolState caches the answer about this node.
type poolState struct {
	mu    sync.Mutex
	at    time.Time
	state api.PoolState
}

// pool is GET /v1/pool: the members as this node sees them, with what each reports about itself.
func (s *Server) pool(w http.ResponseWriter, r *http.Request) *api.Error {
	out := api.PoolView{Nodes: []api.PoolNode{}, Time: time.Now().UTC()}
	if s.opts.Pool == nil {
		httpjson.Write(w, http.StatusOK, out)
		return nil
	}
	own := s.ownState(r.Context())
	out.Conflicts = own.Conflicts
	answers := map[string]api.NodeAnswer{}
	question, _ := json.Marshal(api.PoolQuestion{Ask: api.AskPool}) // never fails
	for _, x := range s.opts.Pool.AskOthers(r.Context(), question, poolTime) {
		answers[x.Node] = x
	}
	for _, m := range s.opts.Pool.Members() {
		n := api.PoolNode{Member: m, Clock: m.Ahead, Error: m.Reason}
		if m.Signed {
			n.Signer = m.ID
		}
		x, asked := answers[m.Name]
		switch {
		case m.Self:
			report(&n, own)
		case asked && x.Missing != "":
			n.Error = x.Missing
		case asked:
			var state api.PoolState
			if json.Unmarshal(x.Body, &state) != nil {
				n.Error = "its answer is invalid, or its version does not answer this question"
				break
			}
			report(&n, state)
		case n.Error == "":
			n.Error = "it was not asked, because it is " + m.State
		}
		out.Nodes = append(out.Nodes, n)
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func report(n *api.PoolNode, s api.PoolState) {
	n.Proxies, n.Problems, n.Conflicts = &s.Proxies, &s.Problems, &s.Conflicts
}

// ownState returns what this node reports about itself.
func (s *Server) ownState(ctx context.Context) api.PoolState {
	p := &s.poolState
	p.mu.Lock() // one at a time
	defer p.mu.Unlock()
	if now := time.Now(); p.at.IsZero() || now.Sub(p.at) >= poolEvery {
		p.state = api.PoolState{Problems: len(s.Status(ctx).Problems)}
		if s.opts.Progress != nil {
			for _, x := range s.opts.Progress() {
				if x.State != api.StateDisconnected {
					p.state.Proxies++
				}
			}
		}
		if s.opts.Pool != nil {
			p.state.Conflicts = len(s.opts.Pool.Conflicts())
		}
		if ctx.Err() == nil {
			p.at = now
		}
	}
	return p.state
}

// Answer answers a question of another agent of the pool, or returns nil if it does not understand
// it.
func (s *Server) Answer(ctx context.Context, question []byte) []byte {
	var q api.PoolQuestion
	if json.Unmarshal(question, &q) == nil && q.Ask == api.AskPool {
		b, _ := json.Marshal(s.ownState(ctx)) // numbers
		return b
	}
	return s.tracker.Answer(ctx, question)
}

// refusals is GET /v1/refusals: the xDS streams that this node refuses.
func (s *Server) refusals(w http.ResponseWriter, r *http.Request) *api.Error {
	v := status.View{Visible: s.visible(r, access.VerbInspect), Whole: s.may(r, access.VerbInspect, resource.Key{})}
	httpjson.Write(w, http.StatusOK, s.tracker.Refusals(&v))
	return nil
}
