package httpapi

import "slices"

// Marshal encodes a document as answers have it.
var Marshal = marshal

// Route is a route of the API for tests.
type Route struct {
	Method, Pattern string
	Open, Connected bool
	Verbs           []string
}

// Routes returns every route that a server has.
func (s *Server) Routes() (out []Route) {
	for _, x := range s.table() {
		out = append(out, Route{x.method, x.pattern, x.need.open, x.need.connected, slices.Clone(x.need.verbs)})
	}
	return out
}
