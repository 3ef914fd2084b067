package httpapi

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// Pool is the gossip pool.
type Pool interface {
	status.Nodes
	Trust
	// Compared is Members, after it asked members that seem to differ. It may take seconds.
	Compared(ctx context.Context) []api.Member
	// Join contacts addresses. Leave removes this node from the pool.
	Join(addrs []string) []api.Joined
	Leave(ctx context.Context) error
	// Forget removes a dead node, given its name or id.
	Forget(node string) error
	// Heal begins an era of the pool, or describes the effect.
	Heal(q api.PoolHeal) (*api.PoolHealed, error)
	// Conflicts returns resource versions that lost to a concurrent write, sorted.
	Conflicts() []api.Conflict
	// ConflictsElsewhere asks the other live nodes for their conflicts. It may take seconds.
	ConflictsElsewhere(ctx context.Context) []api.NodeConflicts
	// AskOthers asks the other live nodes a question, and waits for each at most for the given time.
	AskOthers(ctx context.Context, question []byte, each time.Duration) []api.NodeAnswer
	// Keyring returns the keys of the live nodes by fingerprint. It may take seconds.
	Keyring(ctx context.Context) api.Keyring
}

// members is GET /v1/members.
func (s *Server) members(w http.ResponseWriter, r *http.Request) *api.Error {
	out := api.Members{Items: []api.Member{}}
	if s.opts.Pool != nil {
		out.Items = append(out.Items, s.opts.Pool.Compared(r.Context())...)
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

func noPool() *api.Error {
	return api.NewInvalid("this agent is not in a pool; to join one, set gossip.bind, gossip.join, and gossip.keyringFile")
}

// poolQuestion decodes the body of a POST about the pool.
func poolQuestion[T any](s *Server, w http.ResponseWriter, r *http.Request, into *T) *api.Error {
	httpjson.LimitBody(w, r, maxQuestion)
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	if e := httpjson.Decode(body, into); e != nil {
		return e
	}
	if s.opts.Pool == nil {
		return noPool()
	}
	return nil
}

// maxJoin bounds the addresses of one request.
const maxJoin = 64

// join is POST /v1/members/join.
func (s *Server) join(w http.ResponseWriter, r *http.Request) *api.Error {
	var q api.Join
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if n := len(q.Addresses); n == 0 || n > maxJoin {
		return httpjson.InvalidField("addresses", "has %d entries; give 1 to %d", n, maxJoin)
	}
	for _, a := range q.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return httpjson.InvalidField("addresses", "%q is not HOST:PORT", a)
		}
	}
	httpjson.Write(w, http.StatusOK, api.JoinedList{Items: s.opts.Pool.Join(q.Addresses)})
	return nil
}

// leave is POST /v1/members/leave.
func (s *Server) leave(w http.ResponseWriter, r *http.Request) *api.Error {
	if s.opts.Pool == nil {
		return noPool()
	}
	if err := s.opts.Pool.Leave(r.Context()); err != nil {
		return api.NewError(http.StatusInternalServerError, api.ProblemGeneration, "Not left", "%s", err.Error())
	}
	httpjson.Write(w, http.StatusOK, struct{}{})
	return nil
}

// forget is POST /v1/members/forget.
func (s *Server) forget(w http.ResponseWriter, r *http.Request) *api.Error {
	var q api.Forget
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if q.Node == "" {
		return httpjson.InvalidField("node", "is empty; give the name or the id of a node")
	}
	if err := s.opts.Pool.Forget(q.Node); err != nil {
		return httpjson.InvalidField("node", "%q: %s", q.Node, err.Error())
	}
	httpjson.Write(w, http.StatusOK, struct{}{})
	return nil
}

// maxEvict bounds the nodes and keys of one request.
const maxEvict = 256

// heal is POST /v1/members/heal.
func (s *Server) heal(w http.ResponseWriter, r *http.Request) *api.Error {
	var q api.PoolHeal
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if n := len(q.Evict); n > maxEvict {
		return httpjson.InvalidField("evict", "has %d entries; give at most %d", n, maxEvict)
	}
	out, err := s.opts.Pool.Heal(q)
	if err != nil {
		return api.NewError(http.StatusConflict, api.ProblemInUse, "Not healed", "%s", err.Error())
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// keyring is GET /v1/keyring.
func (s *Server) keyring(w http.ResponseWriter, r *http.Request) *api.Error {
	if s.opts.Pool == nil {
		return noPool()
	}
	httpjson.Write(w, http.StatusOK, s.opts.Pool.Keyring(r.Context()))
	return nil
}

// conflicts is GET /v1/conflicts?allNodes=.
func (s *Server) conflicts(w http.ResponseWriter, r *http.Request) *api.Error {
	all, e := httpjson.Bool(r, "allNodes")
	if e != nil {
		return e
	}
	out := api.Conflicts{Items: []api.ConflictItem{}}
	if s.opts.Pool == nil {
		if all {
			return noPool()
		}
		httpjson.Write(w, http.StatusOK, out)
		return nil
	}
	for _, c := range s.opts.Pool.Conflicts() {
		item := api.NewConflictItem(c)
		if c.Resource != nil && s.may(r, access.VerbGet, c.Key) {
			doc, err := resource.Shown(c.Resource)
			if err != nil {
				return encodeFailed(c.Key, err)
			}
			item.Resource = doc
		}
		out.Items = append(out.Items, item)
	}
	if all {
		s.addConflicts(r.Context(), &out)
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// addConflicts adds the conflicts of the other live nodes. A version that several nodes list is one
// item.
func (s *Server) addConflicts(ctx context.Context, out *api.Conflicts) {
	out.Nodes = 1
	type version struct {
		id  string
		key resource.Key
	}
	at := map[version]int{}
	for i := range out.Items {
		x := &out.Items[i]
		at[version{x.ID, x.Key}], x.FoundOn = i, []string{s.opts.Info.Node}
	}
	for _, m := range s.opts.Pool.Members() {
		if m.State == api.MemberDead {
			out.Unasked = append(out.Unasked, m.Name)
		}
	}
	for _, n := range s.opts.Pool.ConflictsElsewhere(ctx) {
		out.Nodes++
		if n.Missing != "" {
			out.Unanswered = append(out.Unanswered, api.LateNode{Name: n.Node, Reason: n.Missing})
		}
		for _, x := range n.Items {
			v := version{x.ID, resource.Key{Kind: x.Type, Mesh: x.Mesh, Name: x.Name}}
			i, known := at[v]
			if !known {
				i = len(out.Items)
				at[v], x.FoundOn, x.Resource = i, nil, nil
				out.Items = append(out.Items, x)
			}
			out.Items[i].FoundOn = append(out.Items[i].FoundOn, n.Node)
		}
	}
}

// restoreConflict is POST /v1/conflicts/restore: the version becomes the newest one.
func (s *Server) restoreConflict(w http.ResponseWriter, r *http.Request) *api.Error {
	nothing := s.mayWriteNothing(w, r)
	var q api.RestoreConflict
	if e := poolQuestion(s, w, r, &q); e != nil {
		return cmp.Or(nothing, e)
	}
	for _, c := range s.opts.Pool.Conflicts() {
		if c.ID != q.ID {
			continue
		}
		s.audit.About(r, c.Key)
		if e := s.mayWrite(r, s.opts.Store.Snapshot(), c.Key); e != nil {
			return e
		}
		switch {
		case c.Deleted:
			return httpjson.InvalidField("id", "the version is a deletion; delete %s instead", c.Key)
		case c.Resource == nil:
			return httpjson.InvalidField("id", "%s", c.Reason)
		}
		out, e := s.write(r, write.Request{Put: []*resource.Resource{c.Resource}, DryRun: q.DryRun})
		if e != nil {
			return e
		}
		httpjson.Write(w, http.StatusOK, out)
		return nil
	}
	return cmp.Or(nothing, api.NewNotFound("no conflict has the id %q; nearside conflicts lists them", q.ID))
}
