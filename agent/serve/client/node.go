package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// DNS returns how the resolver stands, with the names that it answers by itself: those of a mesh,
// or with an empty one of all, and with a name that one alone. limit bounds how many names are
// fetched; 0 is for none, less than 0 for all.
func (c *Client) DNS(ctx context.Context, mesh, name string, limit int) (*api.DNS, error) {
	const most = 1000
	var out *api.DNS
	for {
		size, have := most, 0
		if out != nil {
			have = len(out.Items)
		}
		if limit >= 0 {
			size = min(size, limit-have)
		}
		page, err := call[api.DNS](ctx, c, http.MethodGet, "/v1/dns",
			query("mesh", mesh, "name", name, "size", strconv.Itoa(size), "offset", strconv.Itoa(have)), nil)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = page
		} else {
			out.Items = append(out.Items, page.Items...)
		}
		if page.Next == nil || len(page.Items) == 0 || len(out.Items) == limit {
			out.Next = nil
			return out, nil
		}
	}
}

// Members returns the nodes of the pool; none where the agent stands alone.
func (c *Client) Members(ctx context.Context) (*api.Members, error) {
	return call[api.Members](ctx, c, http.MethodGet, "/v1/members", nil, nil)
}

// Join has the agent try members at addresses, and says which have answered.
func (c *Client) Join(ctx context.Context, addresses []string) (*api.JoinedList, error) {
	return ask[api.JoinedList](ctx, c, "/v1/members/join", api.Join{Addresses: addresses})
}

// Leave has the agent say that its node goes for good, and end its part in the pool.
func (c *Client) Leave(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/members/leave", nil, nil)
	return err
}

// Forget drops what a dead node owns, by the name or id of the node.
func (c *Client) Forget(ctx context.Context, node string) error {
	_, err := ask[struct{}](ctx, c, "/v1/members/forget", api.Forget{Node: node})
	return err
}

// Conflicts returns versions of resources that are not in force, though nobody who knew them has
// replaced them.
func (c *Client) Conflicts(ctx context.Context) (*api.Conflicts, error) {
	return call[api.Conflicts](ctx, c, http.MethodGet, "/v1/conflicts", nil, nil)
}

// RestoreConflict makes such a version the newest one.
func (c *Client) RestoreConflict(ctx context.Context, r api.RestoreConflict) (*api.Written, error) {
	return ask[api.Written](ctx, c, "/v1/conflicts/restore", r)
}

// ExplainDNS asks why a name resolves as it does.
func (c *Client) ExplainDNS(ctx context.Context, q explain.DNSQuestion) (*explaindns.DNS, error) {
	return ask[explaindns.DNS](ctx, c, "/v1/explain", explain.Question{DNS: &q})
}

// AccessLogs returns the streams of access logs, and where the audit log is.
func (c *Client) AccessLogs(ctx context.Context) (*api.AccessLogs, error) {
	return call[api.AccessLogs](ctx, c, http.MethodGet, "/v1/accesslogs", nil, nil)
}

// FlushLogs has the Envoy of a dataplane write what it holds of its logs.
func (c *Client) FlushLogs(ctx context.Context, mesh, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/accesslogs/flush", query("mesh", mesh, "dataplane", name), nil, nil)
}
