package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
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

func problem(status int, typ, title, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Type: typ, Title: title, Status: status, Detail: detail, InvalidParameters: []InvalidParameter{}}
}

func notFound(detail string, args ...any) *Error {
	return problem(http.StatusNotFound, ProblemNotFound, "Not found", detail, args...)
}

func notReady() *Error {
	return problem(http.StatusServiceUnavailable, ProblemNotReady, "Not ready",
		"the first configs are being computed; repeat the request in a moment")
}

func invalid(detail string, params ...InvalidParameter) *Error {
	e := problem(http.StatusBadRequest, ProblemInvalid, "Invalid request", "%s", detail)
	e.InvalidParameters = append(e.InvalidParameters, params...)
	return e
}

// invalidQuery is the answer to a query parameter with a value it cannot have.
func invalidQuery(name, value, allowed string) *Error {
	reason := fmt.Sprintf("%q is not possible; %s", value, allowed)
	return invalid("query parameter "+name+": "+reason, InvalidParameter{Field: name, Reason: reason})
}

// writeError answers with a problem. What it quotes of a request may hold a key in the wrong place.
func writeError(w http.ResponseWriter, e *Error) {
	shown := *e
	shown.Detail, shown.InvalidParameters = clip.Secrets(e.Detail), slices.Clone(e.InvalidParameters)
	for i := range shown.InvalidParameters {
		p := &shown.InvalidParameters[i]
		p.Document, p.Field, p.Reason = clip.Secrets(p.Document), clip.Secrets(p.Field), clip.Secrets(p.Reason)
	}
	noteProblem(w, &shown)
	writeBody(w, e.Status, "application/problem+json", &shown)
}

func writeJSON(w http.ResponseWriter, status int, v any) { writeBody(w, status, "application/json", v) }

// marshal encodes an answer. A config is mostly JSON already, megabytes of it, which is taken as it
// is.
func marshal(v any) ([]byte, error) {
	c, ok := v.(*Config)
	if !ok {
		return json.Marshal(v)
	}
	n := 1 << 10
	for _, list := range c.XDS {
		for name, body := range list {
			n += len(name) + len(body) + 8
		}
	}
	b := append(make([]byte, 0, n), `{"xds":{`...)
	for i, typeURL := range slices.Sorted(maps.Keys(c.XDS)) {
		b = appendMember(b, i, typeURL)
		b = append(b, '{')
		for j, name := range slices.Sorted(maps.Keys(c.XDS[typeURL])) {
			b = append(appendMember(b, j, name), c.XDS[typeURL][name]...)
		}
		b = append(b, '}')
	}
	b = append(b, '}')
	if c.Diff != nil {
		diff, err := json.Marshal(c.Diff)
		if err != nil {
			return nil, err
		}
		b = append(appendMember(b, 1, "diff"), diff...)
	}
	return append(b, '}'), nil
}

// appendMember begins member i of an object.
func appendMember(b []byte, i int, name string) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	quoted, _ := json.Marshal(name) // a string always has a form
	return append(append(b, quoted...), ':')
}

func writeBody(w http.ResponseWriter, status int, media string, v any) {
	body, err := marshal(v)
	if err != nil { // a value of this package that does not marshal is a defect; the client still gets JSON
		status, media = http.StatusInternalServerError, "application/problem+json"
		body = []byte(`{"type":"` + ProblemInternal +
			`","title":"Internal error","status":500,"detail":"the answer could not be encoded","invalid_parameters":[]}`)
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away is not our failure
}
