package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// DNS returns how the resolver stands, with the names that it answers by itself: those of a mesh,
// or with an empty one of all, and with a name that one alone. limit bounds how many names are
// fetched; 0 is for none, less than 0 for all.
func (c *Client) DNS(ctx context.Context, mesh, name string, limit int) (*DNS, error) {
	const most = 1000
	var out *DNS
	for {
		size, have := most, 0
		if out != nil {
			have = len(out.Items)
		}
		if limit >= 0 {
			size = min(size, limit-have)
		}
		page, err := call[DNS](ctx, c, http.MethodGet, "/v1/dns",
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
func (c *Client) Members(ctx context.Context) (*Members, error) {
	return call[Members](ctx, c, http.MethodGet, "/v1/members", nil, nil)
}

// What is asked of, and answered about, the gossip pool.
type (
	Members         = httpapi.Members
	JoinedList      = httpapi.JoinedList
	Conflicts       = httpapi.Conflicts
	ConflictItem    = httpapi.ConflictItem
	RestoreConflict = httpapi.RestoreConflict
)

// Join has the agent try members at addresses, and says which have answered.
func (c *Client) Join(ctx context.Context, addresses []string) (*JoinedList, error) {
	return ask[JoinedList](ctx, c, "/v1/members/join", httpapi.Join{Addresses: addresses})
}

// Leave has the agent say that its node goes for good, and end its part in the pool.
func (c *Client) Leave(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/members/leave", nil, nil)
	return err
}

// Forget drops what a dead node owns, by the name or id of the node.
func (c *Client) Forget(ctx context.Context, node string) error {
	_, err := ask[struct{}](ctx, c, "/v1/members/forget", httpapi.Forget{Node: node})
	return err
}

// Conflicts returns versions of resources that are not in force, though nobody who knew them has
// replaced them.
func (c *Client) Conflicts(ctx context.Context) (*Conflicts, error) {
	return call[Conflicts](ctx, c, http.MethodGet, "/v1/conflicts", nil, nil)
}

// RestoreConflict makes such a version the newest one.
func (c *Client) RestoreConflict(ctx context.Context, r RestoreConflict) (*Written, error) {
	return ask[Written](ctx, c, "/v1/conflicts/restore", r)
}

// ExplainDNS asks why a name resolves as it does.
func (c *Client) ExplainDNS(ctx context.Context, q DNSQuestion) (*DNSExplanation, error) {
	return ask[DNSExplanation](ctx, c, "/v1/explain", explain.Question{DNS: &q})
}

// Verdicts of a [DNSExplanation].
const (
	DNSResolves  = explain.DNSResolves
	DNSForwarded = explain.DNSForwarded
)

// States of the resolver.
const (
	DNSOff     = httpapi.DNSOff
	DNSServing = httpapi.DNSServing
)

// AccessLogs returns the streams of access logs, and where the audit log is.
func (c *Client) AccessLogs(ctx context.Context) (*AccessLogs, error) {
	return call[AccessLogs](ctx, c, http.MethodGet, "/v1/accesslogs", nil, nil)
}

// FlushLogs has the Envoy of a dataplane write what it holds of its logs.
func (c *Client) FlushLogs(ctx context.Context, mesh, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/accesslogs/flush", query("mesh", mesh, "dataplane", name), nil, nil)
}
