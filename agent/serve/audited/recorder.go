package audited

import (
	"bytes"
	"cmp"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// recorder passes an answer through and records data for the event. It delays the answer to a
// change until send, after the event.
type recorder struct {
	http.ResponseWriter
	rec    *Record
	status int
	length int          // of the body
	body   bytes.Buffer // the start of the body, or all of it if it is delayed
	tee    bool
	waits  bool
}

// Unwrap supports [http.ResponseController].
func (a *recorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *recorder) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	if status < http.StatusOK { // interim response
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.status = status
	a.tee = a.rec.level() == audit.LevelRequestResponse
	if a.waits = a.rec.stored; !a.waits {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *recorder) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.length += len(p)
	if a.waits {
		return a.body.Write(p)
	}
	if left := audit.MaxBody + 1 - a.body.Len(); a.tee && left > 0 {
		a.body.Write(p[:min(left, len(p))])
	}
	return a.ResponseWriter.Write(p)
}

// send sends a delayed answer.
func (a *recorder) send() {
	if !a.waits {
		return
	}
	a.ResponseWriter.WriteHeader(a.status)
	_, _ = a.ResponseWriter.Write(a.body.Bytes()) // ignores a client that disconnected
}

func (a *recorder) code() int { return cmp.Or(a.status, http.StatusOK) }

// NoteProblem records the problem of a request for its event.
func (a *recorder) NoteProblem(e *api.Error) { a.rec.problem = e }

// addressOf returns the address of a peer without its port, or "" for a Unix socket.
func addressOf(p *access.Peer) string {
	if p.Local {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return p.Addr
	}
	return host
}

// reason returns in a few words why a peer is allowed.
func (x *Requests) reason(p *access.Peer) string {
	roles := x.Roles
	switch names := roles.Of(p); {
	case roles.Operator(p):
		return "root or the agent's user"
	case len(names) > 0:
		return "roles " + strings.Join(names, ", ")
	case p.Local:
		return "the socket and its group"
	case p.Token != nil:
		return "token"
	}
	return "open to all"
}

func decimal(n int) string { return strconv.Itoa(n) }
