package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Options configures the API. Requests call the functions concurrently. They must not block, and
// the returned values must not change.
type Options struct {
	write.Options // for writes; [New] sets Rendered, Comparing, and Auditable
	Info          api.Info
	// Proxies returns the xDS clients, connected or recently connected: [rollout.Proxies.Status].
	// Nil: none.
	Proxies func() []api.ProxyStatus
	// Refused returns the refused streams: [ads.Server.Refused]. Nil: none.
	Refused func() api.Refusals
	// Memory returns the memory use of the agent. Nil: unknown.
	Memory func() api.MemoryStatus
	// Counts returns the counters of each connected Envoy by node ID, without Envoys that do not
	// report. It may take seconds. Nil: none.
	Counts func() map[string]api.ProxyCounts
	// Envoy returns the Envoy of a client. Nil: none can be queried.
	Envoy func(*api.ProxyStatus) Envoy
	// Drain drains a dataplane for a sender, or undoes that: [proxydrain.Drains.Run]. Nil: the agent
	// serves no proxies.
	Drain func(ctx context.Context, dataplane resource.Key, q *api.DrainRequest, who string) (*api.Drain, *api.Error)
	// Certificate returns the certificate that this agent issued to a proxy, and false if there is
	// none. Nil: none.
	Certificate func(mesh, name string) (identity.Issued, bool)
	// Holders returns [api.Status].Holders. Nil: there are no FIFOs.
	Holders func() map[string]int
	// Logs is the account of access logs. Nil: none.
	Logs status.Logs
	// FlushLogs asks the Envoy of a dataplane to flush its logs. It returns false for an Envoy that
	// does not log through the agent. It may take seconds, but no longer than its context. Nil:
	// none.
	FlushLogs func(ctx context.Context, mesh, name string) (bool, error)
	// DNS returns the state of the resolver, and DNSLine its part of the status. Nil: no resolver.
	DNS     func() explaindns.Resolver
	DNSLine func() *api.DNSLine
	// Pool is the gossip pool. Nil: none.
	Pool Pool
	// Authors returns a function that names the author of a change; see [peers.Source.Authors]. Nil:
	// no signer is known.
	Authors func() func(name string, signer sign.ID) api.Author
	// Debug returns the text of an item of GET /v1/debug/{item}.
	Debug func(item string) ([]byte, *api.Error)
	// ReadLogs serves lines of log files: [logsapi.Logs.Serve]. Nil: none can be read.
	ReadLogs func(w http.ResponseWriter, r *http.Request, may func(verb string, k resource.Key) bool) *api.Error
	// Edges serves which services may call which: [edgesapi.Edges.Serve]. Nil: unknown.
	Edges func(w http.ResponseWriter, r *http.Request, pageSize int, visible func(resource.Key) bool) *api.Error
	// AuditFile is the path of the audit log.
	AuditFile string
	// AuditChain returns the agent's record of the audit log, or nil. Nil: none.
	AuditChain func() *api.AuditChain
	// ProxiesOf returns the clients of one proxy: [rollout.Proxies.StatusOf]. Nil: they are
	// searched in Proxies.
	ProxiesOf func(node.Ref) []api.ProxyStatus
	// InUse returns the state of a node's Envoy: [rollout.Proxies.InUse]. Nil: unknown.
	InUse func(node.Key) *rollout.InUse
	// Drains knows how the clients drain. Nil: Envoy's defaults.
	Drains *drains.Drains
	// Progress returns the progress of the clients, and Watch a channel that signals changes of it:
	// [rollout.Proxies.Progress] and [rollout.Proxies.Watch]. Nil: no clients, no changes.
	Progress func() []rollout.Progress
	Watch    func() (changed <-chan struct{}, stop func())
	// Events distributes events to readers. Nil: only problems are events.
	Events *events.Hub
	// Files returns the state of every resource file, sorted by path. Nil: no resource directory.
	Files func() []api.FileStatus
	// CatchUp returns when the current content of resource files is stored, or cannot be. Nil:
	// returns at once.
	CatchUp func(context.Context)
	// Suspended returns why a path is not served while the state cannot be used, or nil. Nil: all are.
	Suspended func(pattern string) *api.Error
	// Live and Ready return the checks of /livez and /readyz. Nil: always healthy. Checks of Ready
	// must not depend on other agents.
	Live, Ready func() []api.Check
	// Host returns the checks of the agent's surroundings, which may take a second and do not
	// affect readiness. Nil: none.
	Host   func(context.Context) []api.Check
	Access Access
	// Audit is the audit log. Nil: none.
	Audit   audited.Log
	Metrics prometheus.Gatherer   // source of /metrics; nil: /metrics is not found
	Measure prometheus.Registerer // registry for the metrics of the API; nil: none
	Level   *slog.LevelVar        // level of Log; nil: fixed
	Limits  Limits
}

// Access configures authentication and authorization.
type Access struct {
	Roles *access.Roles
	// Token is the bearer token of api.tokenFile, with the subject [access.StaticSubject]. Empty:
	// none.
	Token string
	// Verify returns the claims of a signed token for the API, or an error for its sender. Nil: no
	// signed tokens.
	Verify func(text string) (token.Claims, error)
	// Proxies are the rules of xds.access, for display with the roles. Nil: the default rules.
	Proxies []access.ProxyRule
}

// Limits bounds the work for one client. Zero fields have the defaults in their comments.
type Limits struct {
	Body       int64         // bytes of a request body; 16 MiB
	Header     int           // bytes of a request header; 64 KiB
	HeaderTime time.Duration // to read a request header; 5 s
	ReadTime   time.Duration // to read a whole request; 30 s
	WriteTime  time.Duration // to write an answer; 60 s
	IdleTime   time.Duration // between two requests of a connection; 60 s
	// open connections per listener; 256, of which 1/16 are reserved for root and the agent's user
	Connections int
	// open connections of one user or address, except root and the agent's user; a quarter of
	// Connections
	PerOwner    int
	Waits       int           // concurrent waits of one user or address; 16
	Events      int           // concurrent streams of events of one user or address; 7/8 of PerOwner
	Comparisons int           // diffs and explanations of one user or address, running or queued; 8
	Configs     int           // concurrent configs and rules of one user or address; 16
	LookTime    time.Duration // time of a status for checks of disconnected proxies; 500 ms
	SignEvery   time.Duration // interval of signs of life; 500 ms
	PageSize    int           // default page size; 100
}

// reserved returns the connections for root and the agent's user.
func (l Limits) reserved() int { return l.Connections / 16 }

func (l Limits) withDefaults() Limits {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orDur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if l.Body == 0 {
		l.Body = api.MaxBody
	}
	orInt(&l.Header, 64<<10)
	orDur(&l.HeaderTime, 5*time.Second)
	orDur(&l.ReadTime, 30*time.Second)
	orDur(&l.WriteTime, time.Minute)
	orDur(&l.IdleTime, time.Minute)
	orDur(&l.LookTime, 500*time.Millisecond)
	orDur(&l.SignEvery, 500*time.Millisecond)
	orInt(&l.Connections, 256)
	orInt(&l.PerOwner, max(1, l.Connections/4))
	orInt(&l.Waits, 16)
	orInt(&l.Events, max(1, l.PerOwner*7/8))
	orInt(&l.Comparisons, 8)
	orInt(&l.Configs, 16)
	orInt(&l.PageSize, 100)
	return l
}

// Validate reports missing and invalid options.
func (o *Options) Validate() error {
	var errs []error
	if o.Registry == nil {
		errs = append(errs, errors.New("httpapi.Options.Registry: is nil; give the kinds to serve"))
	}
	if o.Store == nil {
		errs = append(errs, errors.New("httpapi.Options.Store: is nil; give the store to serve"))
	}
	if o.Last == nil {
		errs = append(errs, errors.New("httpapi.Options.Last: is nil; give a function that returns the last result"))
	}
	if o.NewMesh == nil {
		errs = append(errs, errors.New("httpapi.Options.NewMesh: is nil; give a function that derives meshes"))
	}
	if o.Access.Roles == nil {
		errs = append(errs, errors.New("httpapi.Options.Access.Roles: is nil; give what decides who may do what"))
	}
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"Body", o.Limits.Body}, {"Header", int64(o.Limits.Header)}, {"HeaderTime", int64(o.Limits.HeaderTime)},
		{"ReadTime", int64(o.Limits.ReadTime)}, {"WriteTime", int64(o.Limits.WriteTime)},
		{"IdleTime", int64(o.Limits.IdleTime)}, {"Connections", int64(o.Limits.Connections)},
		{"PerOwner", int64(o.Limits.PerOwner)}, {"Waits", int64(o.Limits.Waits)}, {"Events", int64(o.Limits.Events)},
		{"Comparisons", int64(o.Limits.Comparisons)}, {"Configs", int64(o.Limits.Configs)},
		{"PageSize", int64(o.Limits.PageSize)}, {"SignEvery", int64(o.Limits.SignEvery)},
	} {
		if l.value < 0 {
			errs = append(errs, fmt.Errorf("httpapi.Options.Limits.%s: %d is negative; 0 selects the default", l.name, l.value))
		}
	}
	return errors.Join(errs...)
}
