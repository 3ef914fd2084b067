package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Pool is the gossip pool as the API needs it.
type Pool interface {
	// Members returns the nodes, sorted by name.
	Members() []Member
	// Join tries addresses, and Leave ends the part of this node in the pool.
	Join(addrs []string) []Joined
	Leave(ctx context.Context) error
	// Forget drops a dead node by its name or id.
	Forget(node string) error
	// Conflicts returns versions of resources that are not in force, sorted.
	Conflicts() []Conflict
	// Ask puts a question to the node with an id, whose [Server.Answer] answers it.
	Ask(ctx context.Context, id string, question []byte) ([]byte, error)
}

// States of members.
const (
	MemberAlive = "alive"
	MemberDead  = "dead"
	MemberLeft  = "left"
)

// Member is a node of the pool.
type Member struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"` // for all its life
	Zone    string    `json:"zone"`
	Version string    `json:"version"` // of its agent
	Address string    `json:"address"`
	State   string    `json:"state"` // [MemberAlive], [MemberDead] or [MemberLeft]
	Since   time.Time `json:"since"`
	Self    bool      `json:"self"`
	InSync  bool      `json:"inSync"` // when it was asked last, it had what this node has
	Ahead   float64   `json:"ahead"`  // seconds by which its clock is ahead
	// Revision names what it had when it was asked last: nodes with the same one have the same. Lag is
	// for how many seconds it has had something else than this node.
	Revision string  `json:"revision"`
	Lag      float64 `json:"lag"`
	// AgentLost says that the agent of a dead node alone is dead: dataplanes of the node answer.
	AgentLost bool `json:"agentLost,omitempty"`
}

// Members is the answer of /v1/members.
type Members struct {
	Items []Member `json:"items"`
}

// Join is the body of POST /v1/members/join.
type Join struct {
	Addresses []string `json:"addresses"` // host:port
}

// Joined says whether a member has answered at an address.
type Joined struct {
	Address string `json:"address"`
	Reached bool   `json:"reached"`
}

// JoinedList answers POST /v1/members/join.
type JoinedList struct {
	Items []Joined `json:"items"`
}

// Forget is the body of POST /v1/members/forget.
type Forget struct {
	Node string `json:"node"` // name or id
}

// Conflict is a version of a resource that is not in force, though nobody who knew it has replaced
// it.
type Conflict struct {
	ID      string    `json:"id"`
	State   string    `json:"state"` // ConflictLost or ConflictLimbo
	Deleted bool      `json:"deleted,omitempty"`
	Written time.Time `json:"written"`
	Node    string    `json:"node"`             // that wrote it
	Seen    time.Time `json:"seen,omitzero"`    // when this node saw that it had lost
	Reason  string    `json:"reason,omitempty"` // why it cannot be restored here

	Key      resource.Key       `json:"-"`
	Resource *resource.Resource `json:"-"`
}

// States of a [Conflict].
const (
	ConflictLost  = "lost"  // against a version that another node made at the same time
	ConflictLimbo = "limbo" // a node that was away for long has it, and it may have been deleted meanwhile
)

// ConflictItem is a conflict as it is shown.
type ConflictItem struct {
	Conflict
	Type     string          `json:"type"`
	Mesh     string          `json:"mesh,omitempty"`
	Name     string          `json:"name"`
	Resource json.RawMessage `json:"resource,omitempty"`
}

// Conflicts is the answer of GET /v1/conflicts.
type Conflicts struct {
	Items []ConflictItem `json:"items"`
}

// RestoreConflict is the body of POST /v1/conflicts/restore.
type RestoreConflict struct {
	ID     string `json:"id"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// members is GET /v1/members.
func (s *Server) members(w http.ResponseWriter, _ *http.Request) *Error {
	out := Members{Items: []Member{}}
	if s.opts.Pool != nil {
		out.Items = append(out.Items, s.opts.Pool.Members()...)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func standsAlone() *Error {
	return invalid("this agent stands alone; set gossip.bind, gossip.join and gossip.keyringFile to make it a member " +
		"of a pool")
}

// poolQuestion reads the body of a POST about the pool.
func poolQuestion[T any](s *Server, w http.ResponseWriter, r *http.Request, into *T) *Error {
	limitBody(w, r, maxQuestion)
	body, e := s.body(r)
	if e != nil {
		return e
	}
	if e := decodeRequest(body, into); e != nil {
		return e
	}
	if s.opts.Pool == nil {
		return standsAlone()
	}
	return nil
}

// maxJoin bounds the addresses of one request.
const maxJoin = 64

// join is POST /v1/members/join.
func (s *Server) join(w http.ResponseWriter, r *http.Request) *Error {
	var q Join
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if n := len(q.Addresses); n == 0 || n > maxJoin {
		return invalidField("addresses", "has %d entries; 1 to %d", n, maxJoin)
	}
	for _, a := range q.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return invalidField("addresses", "%q is no host:port", a)
		}
	}
	writeJSON(w, http.StatusOK, JoinedList{Items: s.opts.Pool.Join(q.Addresses)})
	return nil
}

// leave is POST /v1/members/leave.
func (s *Server) leave(w http.ResponseWriter, r *http.Request) *Error {
	if s.opts.Pool == nil {
		return standsAlone()
	}
	if err := s.opts.Pool.Leave(r.Context()); err != nil {
		return problem(http.StatusInternalServerError, ProblemGeneration, "Not left", "%s", err.Error())
	}
	writeJSON(w, http.StatusOK, struct{}{})
	return nil
}

// forget is POST /v1/members/forget.
func (s *Server) forget(w http.ResponseWriter, r *http.Request) *Error {
	var q Forget
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if q.Node == "" {
		return invalidField("node", "is empty; give the name or the id of a node")
	}
	if err := s.opts.Pool.Forget(q.Node); err != nil {
		return invalidField("node", "%q: %s", q.Node, err.Error())
	}
	writeJSON(w, http.StatusOK, struct{}{})
	return nil
}

// conflicts is GET /v1/conflicts.
func (s *Server) conflicts(w http.ResponseWriter, _ *http.Request) *Error {
	out := Conflicts{Items: []ConflictItem{}}
	if s.opts.Pool != nil {
		for _, c := range s.opts.Pool.Conflicts() {
			item := ConflictItem{Conflict: c, Type: c.Key.Kind, Mesh: c.Key.Mesh, Name: c.Key.Name}
			if c.Resource != nil {
				doc, err := resource.Shown(c.Resource)
				if err != nil {
					return encodeFailed(c.Key, err)
				}
				item.Resource = doc
			}
			out.Items = append(out.Items, item)
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// restoreConflict is POST /v1/conflicts/restore: the version becomes the newest one.
func (s *Server) restoreConflict(w http.ResponseWriter, r *http.Request) *Error {
	nothing := s.mayWriteNothing(w, r)
	var q RestoreConflict
	if e := poolQuestion(s, w, r, &q); e != nil {
		return cmp.Or(nothing, e)
	}
	for _, c := range s.opts.Pool.Conflicts() {
		if c.ID != q.ID {
			continue
		}
		s.aboutKey(r, c.Key)
		if e := s.mayWrite(r, s.opts.Store.Snapshot(), c.Key); e != nil {
			return e
		}
		switch {
		case c.Deleted:
			return invalidField("id", "the version is a deletion; delete %s to have it in force", c.Key)
		case c.Resource == nil:
			return invalidField("id", "%s", c.Reason)
		}
		out, e := s.writeChecked(r, []*resource.Resource{c.Resource}, nil, q.DryRun)
		if e != nil {
			return e
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
	return cmp.Or(nothing, notFound("no conflict has the id %q; nearside conflicts lists them", q.ID))
}
