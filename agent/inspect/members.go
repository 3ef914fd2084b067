package inspect

import (
	"net/http"
	"time"
)

// Member is a node of the pool as this node sees it.
type Member struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"` // for all its life
	Zone    string    `json:"zone"`
	Address string    `json:"address"`
	State   string    `json:"state"` // alive, suspect, dead or left
	Since   time.Time `json:"since"`
	Self    bool      `json:"self"`
	InSync  bool      `json:"inSync"` // when it was asked last, it had what this node has
	Ahead   float64   `json:"ahead"`  // seconds by which its clock is ahead
	// AgentLost says that the agent of a dead node alone is dead: dataplanes of the node answer.
	AgentLost bool `json:"agentLost,omitempty"`
}

// Members is the answer of /v1/members.
type Members struct {
	Items []Member `json:"items"`
}

// members is GET /v1/members.
func (s *Server) members(w http.ResponseWriter, _ *http.Request) *Error {
	out := Members{Items: []Member{}}
	if s.opts.Members != nil {
		out.Items = append(out.Items, s.opts.Members()...)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
