package api

import (
	"fmt"
	"strings"
)

// Error is the body of an unsuccessful answer: a problem document of RFC 9457, with the member
// invalid_parameters that Kuma's tools read. Its media type is application/problem+json.
type Error struct {
	Type              string             `json:"type"` // "/problems/…": stable, for programs
	Title             string             `json:"title"`
	Status            int                `json:"status"`
	Detail            string             `json:"detail"`
	InvalidParameters []InvalidParameter `json:"invalid_parameters"`
	Denied            []Denied           `json:"denied,omitempty"` // for the type [ProblemDenied]
}

// InvalidParameter is an invalid field of a request.
type InvalidParameter struct {
	Document string `json:"document,omitempty"` // Kind/mesh/name, if the request has several resources
	Field    string `json:"field"`
	Reason   string `json:"reason"`
}

// Denied is a permission that the sender lacks, in an [Error] of the type [ProblemDenied].
type Denied struct {
	Who  string `json:"who"`
	Verb string `json:"verb"`
	Kind string `json:"kind,omitempty"` // absent for requests without a kind
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name,omitempty"`
	// Features are the dangerous features that the resource needs.
	Features []string `json:"features,omitempty"`
	Roles    []string `json:"roles"` // that would allow it
}

// Error returns the title, the detail, and the invalid fields that the detail does not mention.
func (e *Error) Error() string {
	s := e.Title
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	for _, p := range e.InvalidParameters {
		if strings.Contains(e.Detail, p.Reason) {
			continue // the detail contains it
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
	ProblemTrust      = "/problems/not-trusted" // the trust file does not permit the signer to do this
	ProblemInternal   = "/problems/internal"
	// The server of the web page cannot reach the agent.
	ProblemUnreachable = "/problems/unreachable"
)

// ProgressHeader in a request asks for interim answers (102, RFC 2518 section 10.1) during long
// requests. Each of them has this header with DONE/ALL, the completed and the total number of
// proxies, or with ProgressWaits.
const ProgressHeader = "Nearside-Progress"

// ProgressWaits is the value of the header while the agent serves other requests first.
const ProgressWaits = "waiting"

// MaxBody is the default limit of a request body in bytes.
const MaxBody = 16 << 20

// HTTP statuses for packages without net/http.
const (
	StatusConflict    = 409
	StatusWouldBreak  = 422
	StatusUntrusted   = 422
	StatusInternal    = 500
	StatusUnavailable = 503
	StatusStorage     = 507
)

// NewError returns a problem. With args, detail is a format.
func NewError(status int, typ, title, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Type: typ, Title: title, Status: status, Detail: detail, InvalidParameters: []InvalidParameter{}}
}

// NewNotFound returns the problem of a missing object.
func NewNotFound(detail string, args ...any) *Error {
	return NewError(404, ProblemNotFound, "Not found", detail, args...)
}

// NewNotReady returns the problem of a request before the first pass.
func NewNotReady() *Error {
	return NewError(StatusUnavailable, ProblemNotReady, "Not ready",
		"the first configs are being computed; repeat the request in a moment")
}

// NewInvalid returns the problem of an invalid request, with its invalid fields.
func NewInvalid(detail string, params ...InvalidParameter) *Error {
	e := NewError(400, ProblemInvalid, "Invalid request", detail)
	e.InvalidParameters = append(e.InvalidParameters, params...)
	return e
}
