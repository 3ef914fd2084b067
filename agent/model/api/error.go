package api

import "strings"

// Error is the body of an answer that is not a success: a problem document of RFC 9457 with the
// member invalid_parameters that Kuma's tools read. Its media type is application/problem+json.
type Error struct {
	Type              string             `json:"type"` // "/problems/…", stable: what programs switch on
	Title             string             `json:"title"`
	Status            int                `json:"status"`
	Detail            string             `json:"detail"`
	InvalidParameters []InvalidParameter `json:"invalid_parameters"`
	Denied            []Denied           `json:"denied,omitempty"` // of the type [ProblemDenied]
}

// InvalidParameter is one field of a request that was refused.
type InvalidParameter struct {
	Document string `json:"document,omitempty"` // Kind/mesh/name, where the resource that is the cause has to be told
	Field    string `json:"field"`
	Reason   string `json:"reason"`
}

// Denied is one thing that a peer may not do, in a [Error] of the type [ProblemDenied].
type Denied struct {
	Who   string   `json:"who"`
	Verb  string   `json:"verb"`
	Kind  string   `json:"kind,omitempty"` // absent for what is about no kind
	Mesh  string   `json:"mesh,omitempty"`
	Name  string   `json:"name,omitempty"`
	Roles []string `json:"roles"` // that would allow it
}

// Error returns the title, the detail and the fields that it does not name.
func (e *Error) Error() string {
	s := e.Title
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	for _, p := range e.InvalidParameters {
		if strings.Contains(e.Detail, p.Reason) {
			continue // told already
		}
		s += "\n  "
		for _, where := range []string{p.Document, p.Field} {
			if where != "" {
				s += where + ": "
			}
		}
		s += p.Reason
	}
	return s
}

// Problem types.
const (
	ProblemNotFound   = "/problems/not-found"
	ProblemMethod     = "/problems/method-not-allowed"
	ProblemInvalid    = "/problems/invalid-request"
	ProblemDocument   = "/problems/invalid-resource"
	ProblemDenied     = "/problems/permission-denied"
	ProblemToken      = "/problems/token-needed"
	ProblemLimited    = "/problems/too-many-requests"
	ProblemBrowser    = "/problems/browser-refused"
	ProblemStale      = "/problems/stale-revision"
	ProblemExists     = "/problems/exists"
	ProblemOwned      = "/problems/owned-elsewhere"
	ProblemInUse      = "/problems/in-use"
	ProblemDamaged    = "/problems/damaged"
	ProblemTooLarge   = "/problems/too-large"
	ProblemStorage    = "/problems/insufficient-storage"
	ProblemNotReady   = "/problems/not-ready"
	ProblemAudit      = "/problems/audit-log"
	ProblemGeneration = "/problems/generation-failed"
	ProblemWouldBreak = "/problems/would-break"
	ProblemEnvoy      = "/problems/envoy"
	ProblemInternal   = "/problems/internal"
)

// ProgressHeader asks, in a request, for interim answers (102, RFC 2518 section 10.1) while it
// takes long. Each of them has the header too: DONE/ALL, how many proxies of how many were looked
// at, or ProgressWaits.
const ProgressHeader = "Nearside-Progress"

// ProgressWaits is the value of the header while others are served first.
const ProgressWaits = "waiting"

// MaxBody is how many bytes of a request body are read by default.
const MaxBody = 16 << 20
