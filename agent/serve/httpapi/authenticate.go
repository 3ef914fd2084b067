package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Values of the label reason.
const (
	failedMalformed = "malformed" // the Authorization header is not a bearer token
	failedInvalid   = "invalid"   // a wrong token
	failedLimited   = "limited"   // wrong or not verified, after too many failures
)

func newAuthFailures(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nearside_api_auth_failures_total",
		Help: "API requests with a refused token, by reason."}, []string{"reason"})
	for _, reason := range [...]string{failedMalformed, failedInvalid, failedLimited} {
		c.WithLabelValues(reason)
	}
	if reg == nil {
		return c, nil
	}
	return c, reg.Register(c)
}

// identify adds the identity of the sender to a request: the peer of the connection, and the token
// of the Authorization header, which TCP requires.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (*http.Request, *api.Error) {
	p := sender.Of(r)
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		if p.Local {
			return r, nil
		}
		return nil, unauthenticated(w,
			"requests over TCP require a token: send \"Authorization: Bearer TOKEN\"; "+s.whichToken())
	}
	text, ok := token.Bearer(headers)
	c, err := s.verify(p.Owner(), text, ok)
	switch {
	case errors.Is(err, errLimited):
		w.Header().Set("Retry-After", strconv.Itoa(int(access.RetryAfter.Seconds())))
		w.Header().Set("Connection", "close")
		return nil, api.NewError(http.StatusTooManyRequests, api.ProblemLimited, "Too many failed attempts",
			"%s has sent too many wrong tokens; send the right one, or try again in a second", p.Owner())
	case err != nil:
		return nil, unauthenticated(w, err.Error()+"; "+s.whichToken())
	}
	p.Token = c
	audited.Of(r).Identified(p)
	return r.WithContext(sender.With(r.Context(), p)), nil
}

var errLimited = errors.New("too many failed attempts")

// sameToken compares tokens in constant time.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// verify returns the claims of a token. It compares the token of the token file, and verifies other
// tokens unless the owner of the connection has sent too many wrong ones.
func (s *Server) verify(owner, text string, ok bool) (*token.Claims, error) {
	if s.opts.Access.Token != "" && ok && sameToken(s.opts.Access.Token, text) {
		return &token.Claims{Subject: access.StaticSubject}, nil
	}
	if !s.limiter.Allow(owner, text) {
		s.failures.WithLabelValues(failedLimited).Inc()
		return nil, errLimited
	}
	failed := func(reason string, err error) (*token.Claims, error) {
		if s.limiter.Failed(owner, text) {
			reason, err = failedLimited, errLimited
		}
		s.failures.WithLabelValues(reason).Inc()
		return nil, err
	}
	if !ok {
		return failed(failedMalformed, errors.New("the request must have one Authorization header with \"Bearer TOKEN\""))
	}
	if s.opts.Access.Verify == nil {
		return failed(failedInvalid, errors.New("the token is wrong"))
	}
	c, err := s.opts.Access.Verify(text)
	if err != nil {
		return failed(failedInvalid, err)
	}
	s.limiter.Verified(text)
	return &c, nil
}

// whichToken says which tokens the server accepts.
func (s *Server) whichToken() string {
	var which []string
	if s.opts.Access.Verify != nil {
		which = append(which, "create one with nearside token create --api")
	}
	if s.opts.Access.Token != "" {
		which = append(which, "use the token of api.tokenFile")
	}
	if len(which) == 0 {
		return "this agent accepts no tokens; set api.tokenFile, or use the Unix socket"
	}
	return strings.Join(which, ", or ")
}

func unauthenticated(w http.ResponseWriter, detail string) *api.Error {
	w.Header().Set("WWW-Authenticate", `Bearer realm="nearside"`)
	return api.NewError(http.StatusUnauthorized, api.ProblemToken, "Token needed", "%s", detail)
}
