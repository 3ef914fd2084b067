package httpapi

import (
	"context"
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
)

// Reasons of failed authentications, the values of a label.
const (
	failedMalformed = "malformed" // an Authorization header that is not a bearer token
	failedInvalid   = "invalid"   // a token that is not right
	failedLimited   = "limited"   // not looked at, after too many that failed
)

func newAuthFailures(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nearside_api_auth_failures_total",
		Help: "Requests to the API whose token was refused, by reason."}, []string{"reason"})
	for _, reason := range [...]string{failedMalformed, failedInvalid, failedLimited} {
		c.WithLabelValues(reason)
	}
	if reg == nil {
		return c, nil
	}
	return c, reg.Register(c)
}

// identify returns the request with who sends it: the peer of the connection, with the token of the
// Authorization header where there is one. Over TCP there has to be one.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (*http.Request, *api.Error) {
	p := peerOf(r)
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		if p.Local {
			return r, nil
		}
		return nil, unauthenticated(w, "over TCP it takes a token: send \"Authorization: Bearer TOKEN\"; "+s.whichToken())
	}
	text, ok := token.Bearer(headers)
	c, err := s.verify(p.Owner(), text, ok)
	switch {
	case errors.Is(err, errLimited):
		w.Header().Set("Retry-After", strconv.Itoa(int(access.RetryAfter.Seconds())))
		w.Header().Set("Connection", "close")
		return nil, problem(http.StatusTooManyRequests, api.ProblemLimited, "Too many failed attempts",
			"%s has sent too many wrong tokens, so this one was not looked at; send the right one in a second", p.Owner())
	case err != nil:
		return nil, unauthenticated(w, err.Error()+"; "+s.whichToken())
	}
	p.Token = c
	recordOf(r).peer = p
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, p)), nil
}

var errLimited = errors.New("too many failed attempts")

// sameToken compares tokens in a time that tells nothing.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// verify returns what a token says. The token of the token file is compared, which is as cheap as
// the limit, and every other one is verified as long as the owner of the connection has not sent
// too many wrong ones.
func (s *Server) verify(owner, text string, ok bool) (*token.Claims, error) {
	if s.opts.Access.Token != "" && ok && sameToken(s.opts.Access.Token, text) {
		return &token.Claims{Subject: access.StaticSubject}, nil
	}
	if !s.limiter.Allow(owner, text) {
		s.failures.WithLabelValues(failedLimited).Inc()
		return nil, errLimited
	}
	failed := func(reason string, err error) (*token.Claims, error) {
		s.limiter.Failed(owner, text)
		s.failures.WithLabelValues(reason).Inc()
		return nil, err
	}
	if !ok {
		return failed(failedMalformed, errors.New("the Authorization header is not \"Bearer TOKEN\", once"))
	}
	if s.opts.Access.Verify == nil {
		return failed(failedInvalid, errors.New("the token is not right"))
	}
	c, err := s.opts.Access.Verify(text)
	if err != nil {
		return failed(failedInvalid, err)
	}
	s.limiter.Verified(text)
	return &c, nil
}

// whichToken says which tokens this server takes.
func (s *Server) whichToken() string {
	var which []string
	if s.opts.Access.Verify != nil {
		which = append(which, "nearside token create --api makes one")
	}
	if s.opts.Access.Token != "" {
		which = append(which, "the one of api.tokenFile is right")
	}
	if len(which) == 0 {
		return "this agent has none, so set api.tokenFile, or use the unix socket"
	}
	return strings.Join(which, ", and ")
}

func unauthenticated(w http.ResponseWriter, detail string) *api.Error {
	w.Header().Set("WWW-Authenticate", `Bearer realm="nearside"`)
	return problem(http.StatusUnauthorized, api.ProblemToken, "Token needed", "%s", detail)
}
