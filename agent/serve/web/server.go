package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Values of Options.Mode.
const (
	ModeAgent  = "agent"  // the page shows an agent
	ModeFiles  = "files"  // the page shows files, without an agent
	ModeStatic = "static" // the page is a set of static files
)

// Values of Options.Login.
const (
	LoginURL   = "url"   // sessions begin with a key of [Server.Key]
	LoginToken = "token" // sessions begin with a token of the API
)

// Options configures a server.
type Options struct {
	// Backend is the API. Requests to it have neither cookies nor the headers of browsers, and with
	// LoginToken they have the token of the session.
	Backend http.Handler
	Mode    string // ModeAgent or ModeFiles
	Login   string // LoginURL or LoginToken
	// Write lets requests pass that change something.
	Write bool
	// WriteRemedy tells the user of a page without Write how to change something.
	WriteRemedy string
	// EditFiles lets the page edit the resource files that the status of the backend lists. It
	// requires Write, and a backend on this host.
	EditFiles bool
	Files     []string // paths that the page shows, for its title
	Version   string   // of the program
	// Named reports whether a host, in lower case and without a port, is a name of this server. Nil:
	// it has no names.
	Named func(host string) bool
	// TLS encrypts all listeners. Nil: none.
	TLS *tls.Config
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: none
}

// Validate reports missing and contradictory options.
func (o *Options) Validate() error {
	switch {
	case o.Backend == nil:
		return errors.New("web.Options.Backend: is nil; give the API")
	case o.Mode != ModeAgent && o.Mode != ModeFiles:
		return fmt.Errorf("web.Options.Mode: %q is invalid; use %q or %q", o.Mode, ModeAgent, ModeFiles)
	case o.Login != LoginURL && o.Login != LoginToken:
		return fmt.Errorf("web.Options.Login: %q is invalid; use %q or %q", o.Login, LoginURL, LoginToken)
	case o.EditFiles && (!o.Write || o.Login != LoginURL):
		return errors.New("web.Options.EditFiles: requires Write and LoginURL")
	}
	return nil
}

// Server serves the page. Create it with [New].
type Server struct {
	opts     Options
	log      *slog.Logger
	page     assets
	sessions *sessions
	rules    *http.ServeMux
	classes  map[string]class
	editing  sync.Mutex // held while a file is replaced
}

// New validates the options and creates a server. It opens and starts nothing.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	page, err := pageAssets()
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, log: o.Log, page: page, sessions: newSessions(o.Now)}
	s.rules, s.classes = newRules()
	return s, nil
}

// Key returns a key that begins one session: the value of the query parameter key of the page. It
// is valid once and for five minutes. With an owner (see [access.OwnerOverTCP]), only that user of
// this host can use it.
func (s *Server) Key(owner string) string { return s.sessions.newKey(owner) }

// Limits of the server.
const (
	headerTime     = 5 * time.Second  // to read the header of a request
	readTime       = 30 * time.Second // to read a whole request
	writeTime      = time.Minute      // for one write of an answer to proceed
	idleTime       = time.Minute      // between two requests of a connection
	headerBytes    = 32 << 10
	maxConnections = 1024
	maxOfOwner     = 512 // of one user or address
	drainTime      = 2 * time.Second
)

// Serve serves all listeners until the context ends or a listener fails. Then it ends the requests
// in flight, closes the listeners, and returns when all its goroutines have ended. Meanwhile, it
// runs beside, which must return when its context ends. Nil: nothing.
func (s *Server) Serve(ctx context.Context, beside func(context.Context), listeners ...net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		TLSConfig:         s.opts.TLS,
		ConnContext:       connContext,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends streams
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			counted := &sender.Listener{Listener: l, Connections: maxConnections, PerOwner: maxOfOwner,
				Privileged: func(*access.Peer) bool { return false }, Log: s.log}
			var err error
			if s.opts.TLS != nil {
				err = srv.ServeTLS(counted, "", "")
			} else {
				err = srv.Serve(counted)
			}
			if !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("the page on %s: %w", l.Addr(), err))
			}
		})
	}
	if beside != nil {
		wg.Go(func() { beside(ctx) })
	}
	<-ctx.Done()
	sender.Shut(ctx, srv, drainTime, listeners)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// connContext adds the peer of a connection to the context of its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	t, ok := c.(*tls.Conn)
	if !ok {
		return sender.OfConn(ctx, c)
	}
	return sender.OfConn(ctx, t.NetConn())
}

// ServeHTTP implements [http.Handler]. The context of the request must have the local address of
// the connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	answer := &patient{ResponseWriter: w}
	if e := gate(r, s.opts.Named); e != nil {
		writeProblem(answer, e, nil)
		return
	}
	p := r.URL.Path[1:]
	switch kindOf(p) {
	case asksPage:
		if r.URL.Query().Has("key") {
			s.redeem(answer, r)
			return
		}
		s.page[indexFile].serve(answer, r)
	case asksAsset:
		a := s.page[p]
		if a == nil {
			writeProblem(answer, api.NewNotFound("the page has no file %q", clip.Value(p)), nil)
			return
		}
		a.serve(answer, r)
	case asksData:
		s.data(answer, r, p)
	}
}

// data serves the requests of the page.
func (s *Server) data(w http.ResponseWriter, r *http.Request, p string) {
	if p == "ui/session" && r.Method == http.MethodPost {
		s.login(w, r)
		return
	}
	found := s.session(r)
	if found == nil {
		s.unknown(w, "")
		return
	}
	ctx, done := s.sessions.during(r.Context(), found)
	defer done()
	r = r.WithContext(ctx)
	switch {
	case p == "ui/session":
		s.sessionDocument(w, r, found)
	case p == "ui/files":
		s.files(w, r)
	case strings.HasPrefix(p, "api/"):
		s.serveAPI(w, r, found)
	default:
		writeProblem(w, api.NewNotFound("there is no path %q; the page uses api/, ui/session, and ui/files",
			clip.Value(p)), nil)
	}
}

// patient is an answer whose reader has writeTime for each write. Without that, a slow reader would
// keep its connection, and a limit for the whole answer would end streams.
type patient struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *patient) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *patient) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	// An answer that is only recorded has no deadline.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime))
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *patient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// writeProblem writes a problem, with further members.
func writeProblem(w http.ResponseWriter, e *api.Error, more map[string]string) {
	shown := *e
	shown.Detail = clip.Secrets(e.Detail)
	body, err := json.Marshal(&shown)
	if err == nil && len(more) > 0 {
		doc := map[string]any{}
		if err = json.Unmarshal(body, &doc); err == nil {
			for name, value := range more {
				doc[name] = value
			}
			body, err = json.Marshal(doc)
		}
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(body, '\n')) // ignores a client that disconnected
}

// writeJSON writes a document.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = json.NewEncoder(w).Encode(v) // ignores a client that disconnected
}
