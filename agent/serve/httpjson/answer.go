// Package httpjson reads the parameters and bodies of API requests, and writes answers as JSON and
// problem documents (RFC 9457). Parsers answer invalid input with a problem that names the
// parameter, its value, and the allowed ones. Problems contain no secrets.
package httpjson

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// problemNoter is a writer that records the problem of an answer.
type problemNoter interface{ NoteProblem(*api.Error) }

// WriteError writes a problem. It redacts secrets, because quoted parts of the request may contain
// a misplaced key.
func WriteError(w http.ResponseWriter, e *api.Error) {
	shown := *e
	shown.Detail, shown.InvalidParameters = clip.Secrets(e.Detail), slices.Clone(e.InvalidParameters)
	for i := range shown.InvalidParameters {
		p := &shown.InvalidParameters[i]
		p.Document, p.Field, p.Reason = clip.Secrets(p.Document), clip.Secrets(p.Field), clip.Secrets(p.Reason)
	}
	if n, ok := w.(problemNoter); ok {
		n.NoteProblem(&shown)
	}
	writeBody(w, e.Status, "application/problem+json", &shown)
}

// Write writes a document.
func Write(w http.ResponseWriter, status int, v any) { writeBody(w, status, "application/json", v) }

// Marshal encodes an answer. Configs consist of megabytes of JSON, which it copies unchanged.
func Marshal(v any) ([]byte, error) {
	c, ok := v.(*api.Config)
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

// appendMember starts member i of an object.
func appendMember(b []byte, i int, name string) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	quoted, _ := json.Marshal(name) // a string always encodes
	return append(append(b, quoted...), ':')
}

func writeBody(w http.ResponseWriter, status int, media string, v any) {
	body, err := Marshal(v)
	if err != nil { // internal error; the client still gets JSON
		status, media = http.StatusInternalServerError, "application/problem+json"
		body = []byte(`{"type":"` + api.ProblemInternal +
			`","title":"Internal error","status":500,"detail":"the answer could not be encoded","invalid_parameters":[]}`)
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // ignores a client that disconnected
}

// WriteText writes text.
func WriteText(w http.ResponseWriter, body []byte) *api.Error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // ignores a client that disconnected
	return nil
}
