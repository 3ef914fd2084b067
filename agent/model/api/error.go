package api

import (
	"fmt"
	"strings"
)

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

// Statuses of HTTP that packages without net/http give to problems.
const (
	StatusConflict    = 409
	StatusWouldBreak  = 422
	StatusInternal    = 500
	StatusUnavailable = 503
	StatusStorage     = 507
)

// NewError returns a problem. With args, the detail is a format.
func NewError(status int, typ, title, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Type: typ, Title: title, Status: status, Detail: detail, InvalidParameters: []InvalidParameter{}}
}

// NewNotFound says that something does not exist.
func NewNotFound(detail string, args ...any) *Error {
	return NewError(404, ProblemNotFound, "Not found", detail, args...)
}

// NewNotReady says that there is no result of a reconciliation yet.
func NewNotReady() *Error {
	return NewError(StatusUnavailable, ProblemNotReady, "Not ready",
		"the first configs are being computed; repeat the request in a moment")
}

// NewInvalid says that a request is not possible, with the fields that are wrong.
func NewInvalid(detail string, params ...InvalidParameter) *Error {
	e := NewError(400, ProblemInvalid, "Invalid request", detail)
	e.InvalidParameters = append(e.InvalidParameters, params...)
	return e
}
