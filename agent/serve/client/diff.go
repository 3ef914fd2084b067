package client

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// DiffQuestion is what would change.
type DiffQuestion struct {
	Stream    []byte   // of documents that would be applied; empty: none
	Delete    []string // what would be deleted: TYPE/MESH/NAME, or TYPE/NAME of a kind that belongs to no mesh
	Shadow    bool     // afterwards shadow policies act like the others
	Mesh      string   // only proxies of this mesh; "": all
	Dataplane string   // only the proxies of this name; "": all
	AllNodes  bool     // not only the proxies that are connected to the agent, but every dataplane
	Omit      []string // parts that are left empty: items, patch
}

// Diff asks what would change on the proxies. Nothing is stored.
func (c *Client) Diff(ctx context.Context, q DiffQuestion) (*api.Diff, error) {
	v := query("shadow", strconv.FormatBool(q.Shadow), "mesh", q.Mesh, "dataplane", q.Dataplane,
		"omit", strings.Join(q.Omit, ","))
	v["delete"] = q.Delete
	if q.AllNodes {
		v.Set("allNodes", "true")
	}
	return call[api.Diff](ctx, c, http.MethodPost, "/v1/diff", v, q.Stream)
}
