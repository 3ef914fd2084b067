package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// Options is what the API is built of. Functions are called once per request from many goroutines
// at once; they must not block and the values they return must not change afterwards.
type Options struct {
	write.Options // of what decides the writes; Rendered, Comparing and Auditable are set by [New]
	Info          api.Info
	// Proxies returns who asks for xDS, connected or recently so: [rollout.Proxies.Status]. Nil:
	// nobody.
	Proxies func() []api.ProxyStatus
	// Refused returns the streams that were refused: [ads.Server.Refused]. Nil: none are shown.
	Refused func() api.Refusals
	// Memory returns how the memory of the agent stands. Nil: that is not known.
	Memory func() api.MemoryStatus
	// Counts returns what each connected Envoy has counted, by node id; an Envoy that has not told is
	// left out. It may take seconds. Nil: nobody is asked.
	Counts func() map[string]api.ProxyCounts
	// Envoy returns the Envoy that takes its config as a client. Nil: none is asked.
	Envoy func(*api.ProxyStatus) Envoy
	// Certificate returns the certificate that a proxy was given by this agent, and false where it has
	// none. Nil: no proxy has one.
	Certificate func(mesh, name string) (identity.Issued, bool)
	// Holders returns [api.Status].Holders. Nil: there are no FIFOs.
	Holders func() map[string]int
	// AccessLogs returns the streams of access logs, sorted by kind and name. Nil: there are none.
	AccessLogs func() []api.LogStream
	// FlushLogs has the Envoy of a dataplane write what it holds of its logs. It is false for one that
	// does not log through the agent. It may take seconds, and no longer than its context. Nil: none
	// does.
	FlushLogs func(ctx context.Context, mesh, name string) (bool, error)
	// DNS returns how the resolver stands, and DNSLine that for the status. Nil: there is none.
	DNS     func() explaindns.Resolver
	DNSLine func() *api.DNSLine
	// Pool is the gossip pool. Nil: the agent stands alone.
	Pool Pool
	// AuditFile is the path of the audit log.
	AuditFile string
	// ProxiesOf returns those of one proxy: [rollout.Proxies.StatusOf]. Nil: they are looked for in
	// Proxies.
	ProxiesOf func(node.Ref) []api.ProxyStatus
	// InUse returns what the Envoy of a node has: [rollout.Proxies.InUse]. Nil: nothing is known of
	// any.
	InUse func(node.Key) *rollout.InUse
	// Progress says how far these are, and Watch gives a channel that tells of changes of that:
	// [rollout.Proxies.Progress] and [rollout.Proxies.Watch]. Nil: nobody is connected, nothing
	// changes.
	Progress func() []rollout.Progress
	Watch    func() (changed <-chan struct{}, stop func())
	// Files returns the state of every resource file, sorted by path. Nil: there is no resource
	// directory.
	Files func() []api.FileStatus
	// CatchUp returns when what resource files hold now is stored, or cannot be. Nil: it always is.
	CatchUp func(context.Context)
	// Live and Ready return the checks behind /livez and /readyz. Nil: always well. No check of Ready
	// may depend on other agents.
	Live, Ready func() []api.Check
	Access      Access
	// Audit is the audit log. Nil: there is none.
	Audit   Auditor
	Metrics prometheus.Gatherer   // what /metrics serves; nil: /metrics is not found
	Measure prometheus.Registerer // where the metrics of the API itself are registered; nil: nowhere
	Level   *slog.LevelVar        // of Log; nil: it cannot be changed
	Limits  Limits
}

// Access says who may do what.
type Access struct {
	Roles *access.Roles
	// Token is the bearer token of api.tokenFile, whose subject is [access.StaticSubject]. Empty:
	// there is none.
	Token string
	// Verify returns what a signed token for the API says, or why it is not right. The error is shown
	// to who sent it. Nil: there are none.
	Verify func(text string) (token.Claims, error)
	// Proxies are the rules of xds.access, which are shown beside the roles. Nil: the default holds.
	Proxies []access.ProxyRule
}

// Limits bounds the work for one client. Zero fields take the defaults named beside them.
type Limits struct {
	Body        int64         // bytes of a request body; 16 MiB
	Header      int           // bytes of a request header; 64 KiB
	HeaderTime  time.Duration // to read a request header; 5 s
	ReadTime    time.Duration // to read a whole request; 30 s
	WriteTime   time.Duration // to write an answer; 60 s
	IdleTime    time.Duration // between two requests of a connection; 60 s
	Connections int           // open at once, per listener; 256, of which one in 16 is for root and the agent's user
	PerOwner    int           // of one user or address, root and the agent's user aside; a quarter of Connections
	Waits       int           // of one user or address under way at once; 16
	Comparisons int           // differences and explanations of one user or address, under way or in the queue; 8
	Configs     int           // configs and rules of one user or address under way at once; 16
	LookTime    time.Duration // of a status, to look at proxies that are not connected; 500 ms
	SignEvery   time.Duration // between signs of life of a request that takes long; 500 ms
	PageSize    int           // items of a list page when the request names no size; 100
}

// reserved is how many connections are for root and the agent's user.
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
	orInt(&l.Comparisons, 8)
	orInt(&l.Configs, 16)
	orInt(&l.PageSize, 100)
	return l
}

// Validate reports what is missing or out of range.
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
		{"PerOwner", int64(o.Limits.PerOwner)}, {"Waits", int64(o.Limits.Waits)},
		{"Comparisons", int64(o.Limits.Comparisons)}, {"Configs", int64(o.Limits.Configs)},
		{"PageSize", int64(o.Limits.PageSize)}, {"SignEvery", int64(o.Limits.SignEvery)},
	} {
		if l.value < 0 {
			errs = append(errs, fmt.Errorf("httpapi.Options.Limits.%s: %d is negative; 0 takes the default", l.name, l.value))
		}
	}
	return errors.Join(errs...)
}
