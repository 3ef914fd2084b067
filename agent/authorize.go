package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	deliverstatus "github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// groups are the groups of the two sockets; negative: none.
type groups struct{ api, xds int }

// openAccess creates the authorizers of proxies and API clients, and opens the signing keys.
func (a *Agent) openAccess(cfg *config.Config, g groups) (err error) {
	uid := uint32(os.Geteuid()) // #nosec G115 -- user ids are not negative
	if a.proxies, err = access.NewProxies(access.ProxyOptions{Rules: cfg.XDS.Access, AgentUID: uid, GID: g.xds,
		Insecure: cfg.XDS.Insecure, Unpinned: cfg.XDS.Unpinned == "allow"}); err != nil {
		return err
	}
	if a.roles, err = access.NewRoles(access.RoleOptions{Roles: cfg.API.Roles, AgentUID: uid, GID: g.api,
		Group: cfg.API.Socket.Group}); err != nil {
		return err
	}
	a.tokens = token.Open(filepath.Join(cfg.Paths.State, token.Dir), a.log, a.deps.Now)
	if cfg.API.Roles == nil {
		a.notes = append(a.notes, api.Check{Name: "features", OK: true, Reason: fmt.Sprintf(
			"without api.roles, every writer may use the features %s, and administer this agent",
			strings.Join(access.FeatureNames[:], " and "))})
	}
	for _, w := range cfg.Warnings() {
		a.log.Warn(w)
		a.notes = append(a.notes, api.Check{Name: "access", OK: true, Degraded: true, Reason: w})
	}
	if why := cfg.OneGroup(g.api, g.xds); why != "" {
		a.log.Warn(why)
		a.notes = append(a.notes, api.Check{Name: "groups", OK: true, Degraded: true, Error: true, Reason: why})
	}
	return nil
}

// authorize decides whether a peer may be a proxy, given the stored Dataplane. It is called for
// each stream, and again with each pass and every few seconds, because tokens expire and are
// revoked.
func (a *Agent) authorize(p *access.Peer, ref node.Ref) (access.Grant, error) {
	if p.Token != nil {
		if err := a.tokens.Recheck(p.Token); err != nil {
			return access.Grant{}, err
		}
	}
	t, err := a.target(ref)
	if err != nil {
		return access.Grant{}, err
	}
	return a.proxies.Decide(p, t)
}

// target returns what decides about a proxy. It fails if another node of the pool serves the proxy.
func (a *Agent) target(ref node.Ref) (access.Target, error) {
	t := access.Target{ID: ref.NodeID()}
	if rec, ok := a.store.Snapshot().Get(ref.Key()); ok {
		if rec.Source.Kind == store.SourcePeer {
			return t, status.Errorf(codes.PermissionDenied,
				"%s belongs to the node %s: its Envoy asks the agent there", rec.Key, rec.Source.Detail)
		}
		t.Brought = rec.Source.Kind == store.SourceEnvoy
		t.Stored, t.Pins = true, access.PinsOf(rec.Resource.Labels)
	}
	return t, nil
}

// examine answers whether the peer of a stream may be a proxy, for a test without the stream. It
// reveals names of other proxies only if the peer may be these, too.
func (a *Agent) examine(st access.Stream, ref node.Ref) (out api.Admission) {
	t, err := a.target(ref)
	if err == nil {
		st.Grant, out.Untested, err = a.proxies.Examine(&st.Peer, t)
	}
	if err == nil {
		out.Brought, err = a.envoys.Examine(st)
	}
	if err != nil {
		out.Reason = status.Convert(err).Message()
		return out
	}
	out.Allowed, out.Rule, out.Stored = true, st.Grant.Rule, t.Stored
	if !t.Stored && !out.Brought {
		for _, id := range deliverstatus.Nearest(a.store.Snapshot().Set(), ref.Key()) {
			near, err := node.ParseRef(id)
			if err != nil {
				continue
			}
			if t, err := a.target(near); err == nil {
				if _, _, err := a.proxies.Examine(&st.Peer, t); err == nil {
					out.Nearest = append(out.Nearest, id)
				}
			}
		}
	}
	return out
}

// verifyProxy returns the claims of an Envoy's token.
func (a *Agent) verifyProxy(p *access.Peer, text string) (*token.Claims, error) {
	limited := func() error {
		return status.Errorf(codes.ResourceExhausted, "%s has sent too many wrong tokens; try again in %v", p.Owner(),
			access.RetryAfter)
	}
	if !a.attempts.Allow(p.Owner(), text) {
		return nil, limited()
	}
	c, err := a.tokens.Verify(text, token.AudienceXDS)
	if err != nil {
		if a.attempts.Failed(p.Owner(), text) {
			return nil, limited()
		}
		return nil, err
	}
	a.attempts.Verified(text)
	return &c, nil
}

// serverTLS returns the TLS config of xds.tcp, or nil for plain text. Client certificates are
// optional, but must be from xds.tls.clientCA.
func serverTLS(cfg *config.Config) (*tls.Config, error) {
	c := cfg.XDS.TLS
	if c.Cert == "" {
		return nil, nil
	}
	if st, err := os.Stat(c.Key); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("xds.tls.key: %s is accessible to other users (mode %#o): make a new key with the mode 0600",
			c.Key, st.Mode().Perm())
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("xds.tls.cert and xds.tls.key: %w", err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if c.ClientCA == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("xds.tls.clientCA: %w", err)
	}
	out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("xds.tls.clientCA: %s holds no certificate in PEM", c.ClientCA)
	}
	return out, nil
}

// verifyClient returns the claims of an API client's token.
func (a *Agent) verifyClient(text string) (token.Claims, error) {
	return a.tokens.Verify(text, token.AudienceAPI)
}
