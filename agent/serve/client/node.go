package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// DNS returns the state of the resolver with the names that it answers. An empty mesh selects all
// meshes, and an empty name all names. limit is the maximum number of names: 0 returns none, and a
// negative number returns all.
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

// Members returns the nodes of the pool. The list is empty if the agent is in no pool.
func (c *Client) Members(ctx context.Context) (*api.Members, error) {
	return call[api.Members](ctx, c, http.MethodGet, "/v1/members", nil, nil)
}

// Join makes the agent contact members at the addresses, and returns those that responded.
func (c *Client) Join(ctx context.Context, addresses []string) (*api.JoinedList, error) {
	return ask[api.JoinedList](ctx, c, "/v1/members/join", api.Join{Addresses: addresses})
}

// Leave announces that the agent's node leaves permanently, and removes the node from the pool.
func (c *Client) Leave(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/members/leave", nil, nil)
	return err
}

// Forget removes the resources of a dead node, which is given by name or ID.
func (c *Client) Forget(ctx context.Context, node string) error {
	_, err := ask[struct{}](ctx, c, "/v1/members/forget", api.Forget{Node: node})
	return err
}

// Heal begins an era of the pool, or describes the effect.
func (c *Client) Heal(ctx context.Context, q api.PoolHeal) (*api.PoolHealed, error) {
	return ask[api.PoolHealed](ctx, c, "/v1/members/heal", q)
}

// Keyring returns the keys of the pool by fingerprint.
func (c *Client) Keyring(ctx context.Context) (*api.Keyring, error) {
	return call[api.Keyring](ctx, c, http.MethodGet, "/v1/keyring", nil, nil)
}

// Conflicts returns resource versions that lost to a concurrent write, as this node or all live
// nodes list them.
func (c *Client) Conflicts(ctx context.Context, allNodes bool) (*api.Conflicts, error) {
	return call[api.Conflicts](ctx, c, http.MethodGet, "/v1/conflicts", flag("allNodes", allNodes), nil)
}

// RestoreConflict makes such a version the current one.
func (c *Client) RestoreConflict(ctx context.Context, r api.RestoreConflict) (*api.Written, error) {
	return ask[api.Written](ctx, c, "/v1/conflicts/restore", r)
}

// ExplainDNS explains how a name is resolved.
func (c *Client) ExplainDNS(ctx context.Context, q explain.DNSQuestion) (*explaindns.DNS, error) {
	return ask[explaindns.DNS](ctx, c, "/v1/explain", explain.Question{DNS: &q})
}

// AccessLogs returns the access log streams and the path of the audit log.
func (c *Client) AccessLogs(ctx context.Context) (*api.AccessLogs, error) {
	return call[api.AccessLogs](ctx, c, http.MethodGet, "/v1/accesslogs", nil, nil)
}

// FlushLogs makes the Envoy of a dataplane flush its access logs.
func (c *Client) FlushLogs(ctx context.Context, mesh, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/accesslogs/flush", query("mesh", mesh, "dataplane", name), nil, nil)
}
