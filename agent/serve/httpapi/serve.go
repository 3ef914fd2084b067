package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/rendered"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Server serves the API. Create it with [New].
type Server struct {
	opts    Options
	limits  Limits
	log     *slog.Logger
	handler http.Handler

	stopping chan struct{} // closed when Serve begins to stop
	stop     func()        // closes stopping, once

	comparing chan struct{} // one slot for comparisons
	writer    *write.Writer
	dumping   chan struct{} // one slot for a long answer of an Envoy
	decoding  chan struct{} // one slot for decoding a large body
	saving    sync.Mutex    // held while savings of proxies are computed
	tracker   *status.Tracker
	rendered  rendered.Cache

	limiter  access.Limiter
	failures *prometheus.CounterVec // of authentication, by reason
	waits    sender.Shares
	compares sender.Shares
	configs  sender.Shares
	streams  sender.Shares
	audit    audited.Requests
	events   *events.Server

	poolState poolState
}

// New validates the options and creates a server. It opens and starts nothing.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, limits: o.Limits.withDefaults(), log: o.Log, comparing: make(chan struct{}, 1),
		decoding: make(chan struct{}, 1), dumping: make(chan struct{}, 1)}
	s.tracker = &status.Tracker{Registry: o.Registry, Store: o.Store, Last: o.Last, Proxies: o.Proxies,
		ProxiesOf: o.ProxiesOf, Progress: o.Progress, Watch: o.Watch, Nodes: o.Pool, Certificate: o.Certificate,
		Info: o.Info, Drains: o.Drains, Parts: status.Parts{Ready: o.Ready, Host: o.Host, Files: o.Files, Memory: o.Memory,
			Refused: o.Refused,
			Holders: o.Holders, Logs: o.Logs, DNSLine: o.DNSLine, Counts: o.Counts}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.audit.Log, s.audit.Registry, s.audit.Exists, s.audit.Roles, s.audit.Failed = o.Audit, o.Registry, s.exists,
		o.Access.Roles, s.log
	s.writer = s.newWriter()
	var err error
	if s.failures, err = newAuthFailures(o.Measure); err != nil {
		return nil, fmt.Errorf("register the metrics of the API: %w", err)
	}
	s.stopping = make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	s.events = s.newEvents()
	s.handler = s.audit.Handler(s.guard(s.routes()))
	return s, nil
}

// Shed drops the caches of the server, except those that a running check needs.
func (s *Server) Shed() {
	s.rendered.Drop()
	s.writer.Shed()
}

// Handler returns the handler of the API. Requests that do not come through [Server.Serve] count as
// TCP requests.
func (s *Server) Handler() http.Handler { return s.handler }

// drainTime bounds the requests in flight after the context has ended.
const drainTime = 5 * time.Second

// Serve serves all listeners until the context ends or a listener fails. Then it lets requests in
// flight finish, closes the listeners, and returns when all its goroutines have ended. Connections
// of Unix sockets carry the credentials of the peer; all others count as TCP.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	return s.serve(ctx, "api", s.handler, listeners)
}

// ServeMetrics serves only GET /metrics, and requires a token. Otherwise it is like [Server.Serve].
func (s *Server) ServeMetrics(ctx context.Context, token string, listeners ...net.Listener) error {
	if s.opts.Metrics == nil {
		return errors.New("there are no metrics to serve")
	}
	return s.serve(ctx, "metrics", s.metricsAlone(token), listeners)
}

// metricsAlone returns the handler of ServeMetrics.
func (s *Server) metricsAlone(secret string) http.Handler {
	metrics := s.metrics()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := token.Bearer(r.Header.Values("Authorization"))
		switch {
		case secret == "" || !sameToken(secret, text):
			s.failures.WithLabelValues(failedInvalid).Inc()
			httpjson.WriteError(w,
				unauthenticated(w, "metrics require the token of metrics.tokenFile: send \"Authorization: Bearer TOKEN\""))
		case r.URL.Path != "/metrics":
			httpjson.WriteError(w, api.NewNotFound("only /metrics is served here"))
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			httpjson.WriteError(w,
				api.NewError(http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed", "read metrics with GET"))
		default:
			metrics(w, r)
		}
	})
}

func (s *Server) serve(ctx context.Context, what string, handler http.Handler, listeners []net.Listener) error {
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.limits.HeaderTime,
		ReadTimeout:       s.limits.ReadTime,
		WriteTimeout:      s.limits.WriteTime,
		IdleTimeout:       s.limits.IdleTime,
		MaxHeaderBytes:    s.limits.Header,
		ConnContext:       sender.OfConn,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			err := srv.Serve(&sender.Listener{Listener: l, Connections: s.limits.Connections, Reserved: s.limits.reserved(),
				PerOwner: s.limits.PerOwner, AsksCgroup: s.opts.Access.Roles.AsksCgroup(),
				Privileged: s.opts.Access.Roles.Operator, Log: s.log})
			if !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("%s on %s: %w", what, l.Addr(), err))
			}
		})
	}
	<-ctx.Done()
	s.stop() // answers waiting requests
	sender.Shut(ctx, srv, drainTime, listeners)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
