package client

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// DiffQuestion describes a hypothetical change.
type DiffQuestion struct {
	Stream    []byte   // documents to apply; may be empty
	Delete    []string // resources to delete: TYPE/MESH/NAME, or TYPE/NAME for global kinds
	Shadow    bool     // shadow policies take effect
	Mesh      string   // only proxies of this mesh; "" means all
	Dataplane string   // only proxies with this name; "" means all
	AllNodes  bool     // include dataplanes that are not connected to this agent
	Omit      []string // parts to leave empty: items, patch
}

// Diff returns the changes of proxy configs that a change would cause. Nothing is stored.
func (c *Client) Diff(ctx context.Context, q DiffQuestion) (*api.Diff, error) {
	v := query("shadow", strconv.FormatBool(q.Shadow), "mesh", q.Mesh, "dataplane", q.Dataplane,
		"omit", strings.Join(q.Omit, ","))
	v["delete"] = q.Delete
	if q.AllNodes {
		v.Set("allNodes", "true")
	}
	return call[api.Diff](ctx, c, http.MethodPost, "/v1/diff", v, q.Stream)
}
