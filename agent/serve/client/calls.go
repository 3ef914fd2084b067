package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// Documents of the API, so that commands need not know where they are declared.
type (
	AccessList = httpapi.AccessList
	AccessLogs = httpapi.AccessLogs
	Applied    = httpapi.Applied
	Backends   = explain.Backends
	Blame      = httpapi.Blame
	Can        = httpapi.Can
	Change     = httpapi.Change
	Check      = httpapi.Check
	Config     = httpapi.Config
	// ConfigOptions says which config of a proxy is asked for.
	ConfigOptions = httpapi.ConfigOptions
	DNS           = httpapi.DNS
	DNSClaim      = httpapi.DNSClaim
	DNSUpstream   = httpapi.DNSUpstream
	DNSName       = httpapi.DNSName
	Diff          = change.Diff
	Field         = explain.Field
	Health        = httpapi.Health
	History       = httpapi.History
	InForce       = explain.InForce
	Index         = httpapi.Index
	LogLevel      = httpapi.LogLevel
	Item          = httpapi.Item
	Kind          = httpapi.Kind
	LogStream     = httpapi.LogStream
	Policies      = explain.Policies
	Proxies       = httpapi.Proxies
	Proxy         = httpapi.Proxy
	ProxyRefusals = httpapi.ProxyRefusals
	Revision      = httpapi.Revision
	Rollback      = httpapi.Rollback
	Rules         = explain.Rules
	Service       = httpapi.Service
	Status        = httpapi.Status
	Wait          = httpapi.Wait
	Whoami        = httpapi.Whoami
	Written       = httpapi.Written

	StatusProblem = httpapi.Problem

	FieldChange = jsonpatch.FieldChange

	FieldDiff = change.FieldDiff
	ItemDiff  = change.ItemDiff
	PartDiff  = change.PartDiff
	ProxyDiff = change.ProxyDiff
	TypeDiff  = change.TypeDiff
	Ref       = explain.Ref

	ConnectionQuestion = explain.ConnectionQuestion
	Flow               = explain.Flow
	FlowPolicy         = explain.FlowPolicy
	FlowStep           = explain.FlowStep
	FlowTarget         = explain.Target
	FlowUpstream       = explain.Upstream
	FlowWay            = explain.Way
	RequestHeader      = explain.Header
	RequestQuestion    = explain.RequestQuestion

	DNSExplanation    = explain.DNS
	DNSQuestion       = explain.DNSQuestion
	DNSStep           = explain.DNSStep
	PolicyExplanation = explain.Policy
	PolicyPlace       = explain.Place
	PolicyQuestion    = explain.PolicyQuestion
	Reachability      = explain.Reachability
	ResourceMeta      = explain.ResourceMeta
	Source            = explain.Source
	Tag               = policy.Tag
)

// HostnameCollision is the reason of a hostname that belongs to another service.
const HostnameCollision = httpapi.HostnameCollision

// ProblemNotReady is the type of a [Problem] of an agent that is starting or stopping.
const ProblemNotReady = httpapi.ProblemNotReady

// ProblemDocument is the type of a [Problem] with a document that is not valid.
const ProblemDocument = httpapi.ProblemDocument

// ProblemWouldBreak is the type of a [Problem] with a change that would break proxies.
const ProblemWouldBreak = httpapi.ProblemWouldBreak

// Kinds of a [LogStream].
const (
	LogFIFO     = httpapi.LogFIFO
	LogReceiver = httpapi.LogReceiver
	LogFile     = httpapi.LogFile
)

// States of an [Applied].
const (
	StateApplied    = httpapi.StateApplied
	StateGone       = httpapi.StateGone
	StateInert      = httpapi.StateInert
	StatePending    = httpapi.StatePending
	StateRejected   = httpapi.StateRejected
	StateReplaced   = httpapi.StateReplaced
	StateShadow     = httpapi.StateShadow
	StateUnselected = httpapi.StateUnselected
)

// How much speaks for it that a policy is the cause of a rejection.
const (
	BlameAlone   = httpapi.BlameAlone
	BlameShapes  = httpapi.BlameShapes
	BlameHost    = httpapi.BlameHost
	BlameChanged = httpapi.BlameChanged
)

// Who refused a resource.
const (
	HeldByProxy = httpapi.HeldByProxy
	HeldByCheck = httpapi.HeldByCheck
)

// What can be waited for, and where.
const (
	ForApplied = httpapi.ForApplied
	ForGone    = httpapi.ForGone
	ScopeNode  = httpapi.ScopeNode
	ScopeMesh  = httpapi.ScopeMesh
)

// RetrySaid says when a proxy is sent something again that it rejected for a reason that may pass;
// "" for never.
func RetrySaid(at time.Time) string { return httpapi.RetrySaid(at, time.Now()) }

// Index asks who answers.
func (c *Client) Index(ctx context.Context) (*Index, error) {
	return call[Index](ctx, c, http.MethodGet, "/", nil, nil)
}

// Whoami asks who the agent takes the caller for, and what he may do.
func (c *Client) Whoami(ctx context.Context) (*Whoami, error) {
	return call[Whoami](ctx, c, http.MethodGet, "/v1/access/whoami", nil, nil)
}

// Can asks whether the caller may do something. An empty kind stands for what is about no kind, an
// empty mesh and name for all of them.
func (c *Client) Can(ctx context.Context, verb, kind, mesh, name string) (*Can, error) {
	return call[Can](ctx, c, http.MethodGet, "/v1/access/can",
		query("verb", verb, "kind", kind, "mesh", mesh, "name", name), nil)
}

// Access lists who may do what.
func (c *Client) Access(ctx context.Context) (*AccessList, error) {
	return call[AccessList](ctx, c, http.MethodGet, "/v1/access", nil, nil)
}

// Kinds lists the kinds that the agent knows.
func (c *Client) Kinds(ctx context.Context) ([]Kind, error) {
	k, err := call[httpapi.Kinds](ctx, c, http.MethodGet, "/v1/kinds", nil, nil)
	if err != nil {
		return nil, err
	}
	return k.Items, nil
}

// Get returns one resource. Kind is any of its names; mesh is empty for global kinds.
func (c *Client) Get(ctx context.Context, kind, mesh, name string) (*Item, error) {
	return call[Item](ctx, c, http.MethodGet, resourcePath(kind, mesh, name), flag("meta", true), nil)
}

// List returns the resources of a kind in a mesh, or with an empty mesh all of them, sorted by mesh
// and name.
func (c *Client) List(ctx context.Context, kind, mesh string) ([]Item, error) {
	var out []Item
	for {
		q := url.Values{"meta": {"true"}, "size": {"1000"}, "offset": {strconv.Itoa(len(out))}}
		page, err := call[httpapi.List](ctx, c, http.MethodGet, resourcePath(kind, mesh), q, nil)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.Items {
			var it Item
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

// Apply creates or changes the resources of a stream of documents in one step. Omit are parts of
// the diff of a dry run that are left empty: items, patch.
func (c *Client) Apply(ctx context.Context, stream []byte, dryRun bool, omit ...string) (*Written, error) {
	q := query("omit", strings.Join(omit, ","))
	if dryRun {
		q.Set("dryRun", "true")
	}
	return call[Written](ctx, c, http.MethodPost, "/v1/apply", q, stream)
}

// Replace changes one resource that has not changed since it had an ETag.
func (c *Client) Replace(ctx context.Context, doc []byte, etag string) (*Written, error) {
	out := new(Written)
	if err := c.doIf(ctx, etag, http.MethodPost, "/v1/apply", nil, doc, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete deletes one resource.
func (c *Client) Delete(ctx context.Context, kind, mesh, name string, dryRun bool) (*Written, error) {
	return call[Written](ctx, c, http.MethodDelete, resourcePath(kind, mesh, name), flag("dryRun", dryRun), nil)
}

// History returns the revisions of a resource, oldest first.
func (c *Client) History(ctx context.Context, kind, mesh, name string) (*History, error) {
	p := path("v1", "history", kind, mesh, name)
	if mesh == "" {
		p = path("v1", "history", kind, name)
	}
	return call[History](ctx, c, http.MethodGet, p, nil, nil)
}

// Rollback makes an earlier revision the present one.
func (c *Client) Rollback(ctx context.Context, r Rollback) (*Written, error) {
	return ask[Written](ctx, c, "/v1/rollback", r)
}

// Config returns what the Envoy of a dataplane was sent, or would be.
func (c *Client) Config(ctx context.Context, mesh, name string, o ConfigOptions) (*Config, error) {
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
	return call[Config](ctx, c, http.MethodGet, path("meshes", mesh, "dataplanes", name, "_config"), q, nil)
}

// Rules returns what the policies say about a dataplane; include names what the document is to hold
// besides.
func (c *Client) Rules(ctx context.Context, mesh, name string, shadow bool, include ...string) (*Rules, error) {
	q := url.Values{"shadow": {strconv.FormatBool(shadow)}}
	if len(include) > 0 {
		q["include"] = include
	}
	return call[Rules](ctx, c, http.MethodGet, path("meshes", mesh, "dataplanes", name, "_rules"), q, nil)
}

// Policies lists the policies that select a dataplane.
func (c *Client) Policies(ctx context.Context, mesh, name, backend string) (*Policies, error) {
	return call[Policies](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "policies"),
		query("backend", backend), nil)
}

// Backends lists the services of a mesh as a dataplane sees them.
func (c *Client) Backends(ctx context.Context, mesh, name string) (*Backends, error) {
	return call[Backends](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "backends"), nil, nil)
}

// ExplainPolicy asks what a policy does on a dataplane.
func (c *Client) ExplainPolicy(ctx context.Context, q PolicyQuestion) (*PolicyExplanation, error) {
	return ask[PolicyExplanation](ctx, c, "/v1/explain", explain.Question{Policy: &q})
}

// ExplainConnection asks what becomes of a connection.
func (c *Client) ExplainConnection(ctx context.Context, q ConnectionQuestion) (*Flow, error) {
	return ask[Flow](ctx, c, "/v1/explain", explain.Question{Connection: &q})
}

// ExplainRequest asks what becomes of an HTTP request.
func (c *Client) ExplainRequest(ctx context.Context, q RequestQuestion) (*Flow, error) {
	return ask[Flow](ctx, c, "/v1/explain", explain.Question{Request: &q})
}

// Applied says how far the policies of a kind are in force: those of a mesh and of a name, where
// these are not empty.
func (c *Client) Applied(ctx context.Context, kind, mesh, name string) ([]Applied, error) {
	l, err := call[httpapi.AppliedList](ctx, c, http.MethodGet, path("v1", "applied", kind),
		query("mesh", mesh, "name", name), nil)
	if err != nil {
		return nil, err
	}
	return l.Items, nil
}

// Wait asks how far a resource is in force, and gets the answer when it is, when a proxy rejects
// it, or when the time of the question is up.
func (c *Client) Wait(ctx context.Context, w Wait) (*Applied, error) {
	return ask[Applied](ctx, c, "/v1/wait", w)
}

// Proxies lists the dataplanes and who asks for their config. With "reach" in include, what each
// saves by not reaching all services is worked out.
func (c *Client) Proxies(ctx context.Context, include ...string) (*Proxies, error) {
	return call[Proxies](ctx, c, http.MethodGet, "/v1/dataplanes", query("include", strings.Join(include, ",")), nil)
}

// Proxy returns one of them.
func (c *Client) Proxy(ctx context.Context, mesh, name string) (*Proxy, error) {
	return call[Proxy](ctx, c, http.MethodGet, path("v1", "dataplanes", mesh, name, "status"), nil, nil)
}

// ZoneProxy returns a proxy at the border of a zone. Plural is that of its kind: zoneegresses or
// zoneingresses.
func (c *Client) ZoneProxy(ctx context.Context, plural, name string) (*Proxy, error) {
	return call[Proxy](ctx, c, http.MethodGet, path("v1", plural, name, "status"), nil, nil)
}

// ZoneConfig returns what its Envoy gets.
func (c *Client) ZoneConfig(ctx context.Context, plural, name string) (*Config, error) {
	return call[Config](ctx, c, http.MethodGet, path(plural, name, "_config"), nil, nil)
}

// Services lists the services of a mesh, or with an empty mesh those of all. Kind and name choose
// among them where they are not empty.
func (c *Client) Services(ctx context.Context, mesh, kind, name string) ([]Service, error) {
	out := []Service{}
	for {
		q := query("mesh", mesh, "kind", kind, "name", name, "size", "1000", "offset", strconv.Itoa(len(out)))
		page, err := call[httpapi.Services](ctx, c, http.MethodGet, "/v1/services", q, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Next == nil || len(page.Items) == 0 {
			return out, nil
		}
	}
}

// Status returns the health of the agent and what it holds.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status", nil, nil)
}

// Ready returns the readiness checks; an agent that is not ready is no error.
func (c *Client) Ready(ctx context.Context) (*Health, error) { return c.health(ctx, "/readyz") }

// Live says whether the agent works at all: a restart would help where it does not.
func (c *Client) Live(ctx context.Context) (*Health, error) { return c.health(ctx, "/livez") }

func (c *Client) health(ctx context.Context, path string) (*Health, error) {
	var h Health
	if err := c.do(ctx, http.MethodGet, path, url.Values{"verbose": {""}}, nil, &h,
		http.StatusServiceUnavailable); err != nil {
		return nil, err
	}
	return &h, nil
}

// Names lists names that begin with a prefix: of the resources of a kind, or with an empty kind of
// the kinds.
func (c *Client) Names(ctx context.Context, kind, mesh, prefix string) ([]string, error) {
	n, err := call[httpapi.Names](ctx, c, http.MethodGet, "/v1/names",
		query("kind", kind, "mesh", mesh, "prefix", prefix), nil)
	if err != nil {
		return nil, err
	}
	return n.Names, nil
}

// query has the parameters of pairs of a name and a value whose value is not empty.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// ask posts a document.
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
