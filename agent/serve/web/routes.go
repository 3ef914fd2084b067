package web

import (
	"net/http"
	"net/url"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// class says which requests of a route the page may send.
type class int

const (
	never    class = iota // no page needs it
	reads                 // changes nothing
	dryRuns               // changes nothing with dryRun=true
	writes                // needs Options.Write
	unlisted              // no entry
)

// routes classifies the requests to the API. A request without an entry is a read with GET, and a
// write with another method.
var routes = []struct {
	pattern string
	class   class
}{
	// The debug interface has heap contents, which may include keys.
	{"/v1/debug/", never},
	{"POST /tokens/{kind}", never},

	{"POST /v1/access/can", reads},
	{"POST /v1/explain", reads},
	{"POST /v1/wait", reads},
	{"POST /v1/diff", reads},

	{"POST /v1/apply", dryRuns},
	{"POST /v1/rollback", dryRuns},
	{"PUT /{plural}/{name}", dryRuns},
	{"DELETE /{plural}/{name}", dryRuns},
	{"PUT /meshes/{mesh}/{plural}/{name}", dryRuns},
	{"DELETE /meshes/{mesh}/{plural}/{name}", dryRuns},
}

// newRules returns a mux whose handlers are never called: it finds the entry of a request by the
// same rules as the API.
func newRules() (*http.ServeMux, map[string]class) {
	mux, of := http.NewServeMux(), map[string]class{}
	for _, r := range routes {
		mux.Handle(r.pattern, http.NotFoundHandler())
		of[r.pattern] = r.class
	}
	return mux, of
}

// classify returns the class of a request to the API.
func (s *Server) classify(r *http.Request) class {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	found := unlisted
	if _, pattern := s.rules.Handler(r); pattern != "" {
		found = s.classes[pattern]
	}
	switch {
	case found == unlisted && read:
		return reads
	case found == unlisted:
		return writes
	case found == dryRuns && dryRun(r.URL):
		return reads
	case found == dryRuns:
		return writes
	}
	return found
}

// dryRun reports whether the only value of dryRun is true.
func dryRun(u *url.URL) bool {
	q, err := url.ParseQuery(u.RawQuery)
	return err == nil && len(q["dryRun"]) == 1 && q.Get("dryRun") == "true"
}

// permit refuses a request to the API that the page may not send.
func (s *Server) permit(r *http.Request) *api.Error {
	switch c := s.classify(r); {
	case c == never:
		return refused("pages cannot use this part of the API; use nearside or curl --unix-socket")
	case c == writes && !s.opts.Write:
		return api.NewError(http.StatusForbidden, api.ProblemDenied, "Read-only page",
			"this page cannot change anything; %s", s.opts.WriteRemedy)
	}
	return nil
}
