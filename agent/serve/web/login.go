package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Session is the document of ui/session.
type Session struct {
	Mode     string     `json:"mode"`
	Login    string     `json:"login"`
	Write    bool       `json:"write"`
	Files    []string   `json:"files"`
	Product  string     `json:"product"`
	Version  string     `json:"version"`
	Node     string     `json:"node"`     // name of the agent's node; "": it does not respond
	Instance string     `json:"instance"` // of the agent; "": it does not respond
	Who      string     `json:"who"`      // the user as the agent sees it; "": it does not respond
	Expires  *time.Time `json:"expires"`  // nil: never
	// Remedy tells the user of a page without Write how to change something.
	Remedy string `json:"remedy,omitempty"`
}

// maxToken bounds the body of a login in bytes.
const maxToken = 16 << 10

// encrypted reports whether the browser uses https: to this server, or to a proxy in front of it,
// which serves a configured name. A browser that does not would refuse the cookie.
func (s *Server) encrypted(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	name, _ := splitHost(r.Host)
	return s.opts.Named != nil && s.opts.Named(strings.ToLower(name))
}

// cookieName returns the name of the cookie. Browsers send a cookie to all ports of a host, so
// without TLS the name has the port, and servers on one host do not replace each other's cookie.
func (s *Server) cookieName(r *http.Request) string {
	if s.encrypted(r) {
		return "__Host-nearside"
	}
	port := ""
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		port = portText(a.AddrPort().Port())
	}
	return "nearside-" + port
}

func portText(n uint16) string { return strconv.FormatUint(uint64(n), 10) }

// setCookie sets the only cookie; with an empty secret it removes it.
func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, secret string) {
	c := &http.Cookie{Name: s.cookieName(r), Value: secret, Path: "/", HttpOnly: true, Secure: s.encrypted(r),
		SameSite: http.SameSiteStrictMode}
	if secret == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// owner returns the user of this host who has connected over loopback, or "".
func owner(r *http.Request) string {
	p := sender.Of(r)
	return p.TCPOwner()
}

// session returns the session of a request, or nil.
func (s *Server) session(r *http.Request) *session {
	for _, c := range r.CookiesNamed(s.cookieName(r)) {
		if found := s.sessions.find(c.Value, owner(r)); found != nil {
			return found
		}
	}
	return nil
}

// redeem exchanges the key of a URL for a session, and redirects to the page without the key. With
// a key that is not valid, the page says so, unless the browser already has a session.
func (s *Server) redeem(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && s.opts.Login == LoginURL {
		if secret, ok := s.sessions.redeem(r.URL.Query().Get("key"), owner(r)); ok {
			s.setCookie(w, r, secret)
		}
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// unknown answers a request without a session.
func (s *Server) unknown(w http.ResponseWriter, why string) {
	if why == "" {
		why = "this browser has no session, or it has ended"
	}
	remedy := "log in with a token of the API"
	if s.opts.Login == LoginURL {
		remedy = "press Enter in the terminal of nearside ui, and open the new URL; or run nearside ui again"
	}
	writeProblem(w, api.NewError(http.StatusUnauthorized, api.ProblemToken, "Login needed", "%s; %s", why, remedy),
		map[string]string{"login": s.opts.Login})
}

// login begins a session with a token, which the backend verifies.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if s.opts.Login != LoginToken {
		s.unknown(w, "this page accepts no tokens")
		return
	}
	var q struct {
		Token string `json:"token"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToken))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&q)
	}
	if err != nil || q.Token == "" {
		writeProblem(w, api.NewInvalid(fmt.Sprintf("the body is not {\"token\": \"TOKEN\"} of at most %d bytes", maxToken),
			api.InvalidParameter{Field: "token", Reason: "is missing or invalid; give a token of the API"}), nil)
		return
	}
	if strings.ContainsFunc(q.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		s.unknown(w, "the token has spaces or characters that no token has")
		return
	}
	var who api.Whoami
	if !s.ask(w, r, q.Token, "/v1/access/whoami", &who) {
		return
	}
	secret := s.sessions.begin(q.Token, owner(r))
	s.setCookie(w, r, secret)
	s.sessionDocument(w, r, s.sessions.find(secret, owner(r)))
}

// ask reads a document of the backend. If the backend refuses, ask passes its answer on and returns
// false.
func (s *Server) ask(w http.ResponseWriter, r *http.Request, token, path string, into any) bool {
	status, header, body, err := s.get(r.Context(), token, path)
	switch {
	case err != nil:
		writeProblem(w, unreachable(err), nil)
	case status == http.StatusUnauthorized:
		e := &api.Error{}
		_ = json.Unmarshal(body, e) // else the reason is unknown
		s.unknown(w, e.Detail)
	case status != http.StatusOK:
		for _, name := range []string{"Content-Type", "Retry-After"} {
			if v := header.Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write(body) // ignores a client that disconnected
	case json.Unmarshal(body, into) != nil:
		writeProblem(w, unreachable(errors.New("it sends no JSON")), nil)
	default:
		return true
	}
	return false
}

// sessionDocument serves ui/session: it describes the session, or ends it.
func (s *Server) sessionDocument(w http.ResponseWriter, r *http.Request, found *session) {
	if found == nil {
		s.unknown(w, "")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		s.sessions.end(found)
		s.setCookie(w, r, "")
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPut:
		w.Header().Set("Allow", "DELETE, GET, HEAD, POST")
		writeProblem(w, api.NewError(http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed",
			"PUT is not allowed here; allowed: DELETE, GET, HEAD, POST"), nil)
		return
	}
	doc := Session{Mode: s.opts.Mode, Login: s.opts.Login, Write: s.opts.Write, Files: append([]string{}, s.opts.Files...),
		Product: "nearside", Version: s.opts.Version, Expires: &found.expires}
	if !doc.Write {
		doc.Remedy = s.opts.WriteRemedy
	}
	var who api.Whoami
	status, _, body, err := s.get(r.Context(), found.token, "/v1/access/whoami")
	if err == nil && status == http.StatusUnauthorized {
		s.sessions.end(found)
		s.setCookie(w, r, "")
		s.unknown(w, "the token is no longer valid")
		return
	}
	if err == nil && status == http.StatusOK && json.Unmarshal(body, &who) == nil {
		doc.Who = who.Who
	}
	var index api.Info
	if status, _, body, err = s.get(r.Context(), found.token, "/"); err == nil && status == http.StatusOK &&
		json.Unmarshal(body, &index) == nil {
		doc.Node, doc.Instance = index.Node, index.Instance
	}
	writeJSON(w, doc)
}

// get reads a document of the backend, of at most maxDocument bytes.
func (s *Server) get(ctx context.Context, token, path string) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return Get(ctx, s.opts.Backend, token, path)
}

// askTime bounds the wait for a document of the backend.
const askTime = 5 * time.Second

// maxDocument bounds a document of the backend in bytes.
const maxDocument = 64 << 20

// Get reads a document of a backend. It returns an error if the backend does not respond, or if its
// answer is too large.
func Get(ctx context.Context, backend http.Handler, token, path string) (int, http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return 0, nil, nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("User-Agent", userAgent)
	r.RequestURI = r.URL.RequestURI()
	w := &recorded{header: http.Header{}}
	backend.ServeHTTP(w, r)
	switch {
	case w.failed != nil:
		return 0, nil, nil, w.failed
	case ctx.Err() != nil:
		return 0, nil, nil, ctx.Err()
	}
	return w.status, w.header, w.body.Bytes(), nil
}

// userAgent is shown in the audit log.
const userAgent = "nearside ui"

// recorded is an answer in memory.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
	failed error
}

// Header implements [http.ResponseWriter].
func (w *recorded) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *recorded) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

// Write implements [http.ResponseWriter].
func (w *recorded) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.body.Len()+len(p) > maxDocument {
		w.failed = fmt.Errorf("the answer has more than %d bytes", maxDocument)
		return 0, w.failed
	}
	return w.body.Write(p)
}

// fail records that the backend has not responded.
func (w *recorded) fail(err error) { w.failed = err }
