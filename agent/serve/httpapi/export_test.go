package httpapi

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// Marshal encodes a document as answers have it.
var Marshal = httpjson.Marshal

// Route is a route of the API for tests.
type Route struct {
	Method, Pattern string
	Open, Connected bool
	Verbs           []string
	Kind            string // for the verbs; "" is that of the path, or none
	Some            bool   // a permission for some mesh or name suffices
	// Need is the permission in words: the verbs, the kind, and whether some meshes or names suffice.
	Need string
}

// words describes a need.
func (n need) words(pattern string) string {
	kind := n.kind
	switch {
	case n.open:
		return "open"
	case n.connected:
		return "any identified sender"
	case len(n.verbs) == len(access.Verbs) && n.some:
		return "any permission"
	case kind == "" && strings.Contains(pattern, "{plural}"):
		kind = "{plural}"
	case kind == "":
		kind = "(no kind)"
	}
	out := strings.Join(n.verbs, "|") + " " + kind
	if n.some {
		out += ", for some"
	}
	return out
}

// Routes returns every route that a server has.
func (s *Server) Routes() (out []Route) {
	for _, x := range s.table() {
		out = append(out, Route{x.method, x.pattern, x.need.open, x.need.connected, slices.Clone(x.need.verbs),
			x.need.kind, x.need.some, x.need.words(x.pattern)})
	}
	return out
}
