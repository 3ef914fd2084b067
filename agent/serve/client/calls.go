package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Index returns the identity of the agent.
func (c *Client) Index(ctx context.Context) (*api.Index, error) {
	return call[api.Index](ctx, c, http.MethodGet, "/", nil, nil)
}

// Whoami returns the identity and the permissions of the caller.
func (c *Client) Whoami(ctx context.Context) (*api.Whoami, error) {
	return call[api.Whoami](ctx, c, http.MethodGet, "/v1/access/whoami", nil, nil)
}

// Can reports whether the caller has a permission. An empty kind means requests without a kind, and
// an empty mesh or name means all of them. features are those that a written resource needs.
func (c *Client) Can(ctx context.Context, verb, kind, mesh, name string, features ...string) (*api.Can, error) {
	return call[api.Can](ctx, c, http.MethodGet, "/v1/access/can",
		query("verb", verb, "kind", kind, "mesh", mesh, "name", name, "feature", strings.Join(features, ",")), nil)
}

// Access lists roles and proxy rules.
func (c *Client) Access(ctx context.Context) (*api.AccessList, error) {
	return call[api.AccessList](ctx, c, http.MethodGet, "/v1/access", nil, nil)
}

// Kinds lists the kinds that the agent knows.
func (c *Client) Kinds(ctx context.Context) ([]api.Kind, error) {
	k, err := call[api.Kinds](ctx, c, http.MethodGet, "/v1/kinds", nil, nil)
	if err != nil {
		return nil, err
	}
	return k.Items, nil
}

// Get returns one resource. kind is any name of the kind, and mesh is empty for global kinds.
func (c *Client) Get(ctx context.Context, kind, mesh, name string) (*api.Item, error) {
	return call[api.Item](ctx, c, http.MethodGet, resourcePath(kind, mesh, name), flag("meta", true), nil)
}

// List returns the resources of a kind in a mesh, or in all meshes if mesh is empty, sorted by mesh
// and name.
func (c *Client) List(ctx context.Context, kind, mesh string) ([]api.Item, error) {
	var out []api.Item
	for {
		q := url.Values{"meta": {"true"}, "size": {"1000"}, "offset": {strconv.Itoa(len(out))}}
		page, err := call[api.List](ctx, c, http.MethodGet, resourcePath(kind, mesh), q, nil)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.Items {
			var it api.Item
			if err := json.Unmarshal(raw, &it); err != nil {
				return nil, err
			}
			out = append(out, it)
		}
		if page.Next == nil || len(page.Items) == 0 {
			return out, nil
		}
	}
}

// Apply creates or changes the resources in a stream of documents in one step. omit names parts of
// a dry run's diff to leave empty: items, patch.
func (c *Client) Apply(ctx context.Context, stream []byte, dryRun bool, omit ...string) (*api.Written, error) {
	q := query("omit", strings.Join(omit, ","))
	if dryRun {
		q.Set("dryRun", "true")
	}
	return call[api.Written](ctx, c, http.MethodPost, "/v1/apply", q, stream)
}

// Replace changes one resource if it still has the given ETag.
func (c *Client) Replace(ctx context.Context, doc []byte, etag string) (*api.Written, error) {
	out := new(api.Written)
	if err := c.doIf(ctx, etag, http.MethodPost, "/v1/apply", nil, doc, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete deletes one resource.
func (c *Client) Delete(ctx context.Context, kind, mesh, name string, dryRun bool) (*api.Written, error) {
	return call[api.Written](ctx, c, http.MethodDelete, resourcePath(kind, mesh, name), flag("dryRun", dryRun), nil)
}

// History returns the revisions of a resource, oldest first.
func (c *Client) History(ctx context.Context, kind, mesh, name string) (*api.History, error) {
	p := path("v1", "history", kind, mesh, name)
	if mesh == "" {
		p = path("v1", "history", kind, name)
	}
	return call[api.History](ctx, c, http.MethodGet, p, nil, nil)
}

// Rollback restores an earlier revision of a resource.
func (c *Client) Rollback(ctx context.Context, r api.Rollback) (*api.Written, error) {
	return ask[api.Written](ctx, c, "/v1/rollback", r)
}

// Config returns the config of a dataplane's proxy.
func (c *Client) Config(ctx context.Context, mesh, name string, o render.ConfigOptions) (*api.Config, error) {
	q := url.Values{}
	if o.Shadow {
		q.Set("shadow", "true")
	}
	if o.Computed {
		q.Set("computed", "true")
	}
	if o.Diff {
		q.Set("include", "diff")
	}
	return call[api.Config](ctx, c, http.MethodGet, path("meshes", mesh, "dataplanes", name, "_config"), q, nil)
}

// Rules returns the merged rules of a dataplane. include names optional parts of the document.
func (c *Client) Rules(ctx context.Context, mesh, name string, shadow bool, include ...string) (*explain.Rules, error) {
	q := url.Values{"shadow": {strconv.FormatBool(shadow)}}
	if len(include) > 0 {
		q["include"] = include
	}
	return call[explain.Rules](ctx, c, http.MethodGet, path("meshes", mesh, "dataplanes", name, "_rules"), q, nil)
}

// Policies lists the policies that select a dataplane.
func (c *Client) Policies(ctx context.Context, mesh, name, backend string) (*explain.Policies, error) {
	return call[explain.Policies](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "policies"),
		query("backend", backend), nil)
}

// Backends lists the services of a mesh as a dataplane sees them.
func (c *Client) Backends(ctx context.Context, mesh, name string) (*explain.Backends, error) {
	return call[explain.Backends](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "backends"), nil, nil)
}

// ExplainPolicy explains the effect of a policy on a dataplane.
func (c *Client) ExplainPolicy(ctx context.Context, q explain.PolicyQuestion) (*explain.Policy, error) {
	return ask[explain.Policy](ctx, c, "/v1/explain", explain.Question{Policy: &q})
}

// ExplainConnection explains what happens to a connection.
func (c *Client) ExplainConnection(ctx context.Context, q explain.ConnectionQuestion) (*explain.Flow, error) {
	return ask[explain.Flow](ctx, c, "/v1/explain", explain.Question{Connection: &q})
}

// ExplainRequest explains what happens to an HTTP request.
func (c *Client) ExplainRequest(ctx context.Context, q explain.RequestQuestion) (*explain.Flow, error) {
	return ask[explain.Flow](ctx, c, "/v1/explain", explain.Question{Request: &q})
}

// Applied returns how far the policies of a kind are applied. An empty mesh or name selects all.
func (c *Client) Applied(ctx context.Context, kind, mesh, name string) ([]api.Applied, error) {
	l, err := call[api.AppliedList](ctx, c, http.MethodGet, path("v1", "applied", kind),
		query("mesh", mesh, "name", name), nil)
	if err != nil {
		return nil, err
	}
	return l.Items, nil
}

// Wait returns how far a resource is applied. It returns when the resource is applied, when a proxy
// rejects it, or when the timeout of w has passed.
func (c *Client) Wait(ctx context.Context, w api.Wait) (*api.Applied, error) {
	return ask[api.Applied](ctx, c, "/v1/wait", w)
}

// Proxies lists the dataplanes and their clients. With "reach" in include, each proxy has its
// savings from restricted reachability.
func (c *Client) Proxies(ctx context.Context, include ...string) (*api.Proxies, error) {
	return call[api.Proxies](ctx, c, http.MethodGet, "/v1/dataplanes", query("include", strings.Join(include, ",")), nil)
}

// Proxy returns the status of one proxy.
func (c *Client) Proxy(ctx context.Context, mesh, name string) (*api.Proxy, error) {
	return call[api.Proxy](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "status"), nil, nil)
}

// ZoneProxy returns the status of a zone proxy. plural is zoneegresses or zoneingresses.
func (c *Client) ZoneProxy(ctx context.Context, plural, name string) (*api.Proxy, error) {
	return call[api.Proxy](ctx, c, http.MethodGet, path("v1", plural, name, "status"), nil, nil)
}

// ZoneConfig returns the config of a zone proxy.
func (c *Client) ZoneConfig(ctx context.Context, plural, name string) (*api.Config, error) {
	return call[api.Config](ctx, c, http.MethodGet, path(plural, name, "_config"), nil, nil)
}

// Edges returns all edges between services of a mesh, or of all meshes if mesh is empty. Non-empty
// names of services select the client and the destination. all also selects pairs that no outbound
// connects.
func (c *Client) Edges(ctx context.Context, mesh, from, to string, all bool) (*api.Edges, error) {
	var out *api.Edges
	for {
		q := query("mesh", mesh, "from", from, "to", to, "size", "1000")
		if all {
			q.Set("all", "true")
		}
		if out != nil {
			q.Set("offset", strconv.Itoa(len(out.Edges)))
		}
		page, err := call[api.Edges](ctx, c, http.MethodGet, "/v1/edges", q, nil)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = page
		} else {
			out.Edges = append(out.Edges, page.Edges...)
		}
		if page.Next == nil || len(page.Edges) == 0 {
			out.Next = nil
			return out, nil
		}
	}
}

// Services lists the services of a mesh, or of all meshes if mesh is empty. A non-empty kind or
// name filters the list.
func (c *Client) Services(ctx context.Context, mesh, kind, name string) ([]api.Service, error) {
	out := []api.Service{}
	for {
		q := query("mesh", mesh, "kind", kind, "name", name, "size", "1000", "offset", strconv.Itoa(len(out)))
		page, err := call[api.Services](ctx, c, http.MethodGet, "/v1/services", q, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Next == nil || len(page.Items) == 0 {
			return out, nil
		}
	}
}

// Status returns the health and the state of the agent.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	return call[api.Status](ctx, c, http.MethodGet, "/v1/status", nil, nil)
}

// Ready returns the readiness checks. An agent that is not ready is not an error.
func (c *Client) Ready(ctx context.Context) (*api.Health, error) { return c.health(ctx, "/readyz") }

// Live returns the liveness checks. If one fails, a restart of the agent helps.
func (c *Client) Live(ctx context.Context) (*api.Health, error) { return c.health(ctx, "/livez") }

func (c *Client) health(ctx context.Context, path string) (*api.Health, error) {
	var h api.Health
	if err := c.do(ctx, http.MethodGet, path, url.Values{"verbose": {""}}, nil, &h,
		http.StatusServiceUnavailable); err != nil {
		return nil, err
	}
	return &h, nil
}

// Names lists the resource names of a kind that start with a prefix, or the names of kinds if kind
// is empty.
func (c *Client) Names(ctx context.Context, kind, mesh, prefix string) ([]string, error) {
	n, err := call[api.Names](ctx, c, http.MethodGet, "/v1/names",
		query("kind", kind, "mesh", mesh, "prefix", prefix), nil)
	if err != nil {
		return nil, err
	}
	return n.Names, nil
}

// query returns the parameters with a non-empty value. pairs alternates names and values.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// ask posts a document and returns the response.
func ask[T any](ctx context.Context, c *Client, p string, question any) (*T, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return call[T](ctx, c, http.MethodPost, p, nil, body)
}

func call[T any](ctx context.Context, c *Client, method, p string, q url.Values, body []byte) (*T, error) {
	out := new(T)
	if err := c.do(ctx, method, p, q, body, out); err != nil {
		return nil, err
	}
	return out, nil
}
