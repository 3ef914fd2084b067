package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// invalidQuery returns the answer for an invalid query parameter.
func invalidQuery(name, value, allowed string) *api.Error {
	reason := fmt.Sprintf("%q is invalid; %s", value, allowed)
	return api.NewInvalid("query parameter "+name+": "+reason, api.InvalidParameter{Field: name, Reason: reason})
}

// writeError writes a problem. It redacts secrets, because quoted parts of the request may contain
// a misplaced key.
func writeError(w http.ResponseWriter, e *api.Error) {
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

// marshal encodes an answer. Configs consist of megabytes of JSON, which it copies unchanged.
func marshal(v any) ([]byte, error) {
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
	body, err := marshal(v)
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
