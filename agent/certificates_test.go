package agent_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// TestMutualTLS checks the life cycle of certificates: two Envoys receive certificates and connect,
// one certificate is renewed, tags change, the backend changes, and the agent restarts. Each time
// an Envoy may receive only changed resources.
func TestMutualTLS(t *testing.T) {
	clock := &hand{now: time.Now()}
	dir := agenttest.ShortDir(t)
	r := agenttest.Up(t, dir, agent.Deps{Now: clock.Now})
	agenttest.ByAPI(t, r.Store(), secureMesh("ca-1")+securePair(""))
	web, backend := newSecureClient(t, "web"), newSecureClient(t, "backend")
	both := []*secureClient{web, backend}
	for _, c := range both {
		c.Connect(agenttest.Dial(t, r.Addrs().XDS))
		c.ready()
		agenttest.InSync(t, r.Agent, c.node.Id)
	}
	if err := talk(t, clock.Now(), web, backend); err != nil {
		t.Errorf("web cannot talk to backend: %v", err)
	}
	if err := talk(t, clock.Now(), backend, web); err == nil {
		t.Error("backend was taken for web")
	}

	// Renew a certificate.
	old, first := map[*secureClient]*x509.Certificate{}, *backend
	first.secrets = maps.Clone(backend.secrets)
	for _, c := range both {
		old[c] = c.cert()
	}
	clock.add(20 * time.Hour)
	agenttest.ByAPI(t, r.Store(), agenttest.Meshes("unrelated")) // triggers one pass
	for _, c := range both {
		if got := c.next(); got != "Secret "+ownSecret {
			t.Errorf("%s got %q, want its certificate alone", c.node.Id, got)
		}
		if n := c.cert(); n.Equal(old[c]) || !n.NotAfter.After(old[c].NotAfter) {
			t.Errorf("%s has a certificate valid until %v, it was %v", c.node.Id, n.NotAfter, old[c].NotAfter)
		}
	}
	if err := talk(t, clock.Now(), web, &first); err != nil {
		t.Errorf("web cannot talk to a backend that has the old certificate still: %v", err)
	}

	// With other tags, web gets a new certificate because its SANs change.
	const inbound = "inbound:10.0.0.1:80" // contains no tags, because Envoy would have to replace it
	was := web.has[draft.TypeListener][inbound]
	agenttest.ByAPI(t, r.Store(), securePair(", team: front"))
	web.until("a certificate with the new tag", func() bool {
		return slices.ContainsFunc(web.cert().URIs, func(u *url.URL) bool { return u.String() == "kuma://team/front" })
	})
	agenttest.InSync(t, r.Agent, web.node.Id)
	if web.has[draft.TypeListener][inbound] != was {
		t.Error("a tag changed the inbound listener")
	}

	// Another backend is first trusted, and then signs.
	agenttest.ByAPI(t, r.Store(), secureMesh("ca-2", "ca-1"))
	for _, c := range both {
		c.until("the authorities", func() bool {
			return bytes.Count(c.secrets[authoritySecret].GetValidationContext().GetTrustedCa().GetInlineBytes(),
				[]byte("BEGIN")) == 2
		})
		old[c] = c.cert()
	}
	clock.add(time.Minute)
	agenttest.ByAPI(t, r.Store(), agenttest.Meshes("unrelated+"))
	if got := web.next(); got != "Secret "+ownSecret || web.cert().Equal(old[web]) {
		t.Errorf("web got %q", got)
	}
	if err := talk(t, clock.Now(), web, backend); err != nil { // backend has not received its new certificate yet
		t.Errorf("web with the new authority cannot talk to a backend with the old one: %v", err)
	}
	if got := backend.next(); got != "Secret "+ownSecret {
		t.Errorf("backend got %q", got)
	}
	if err := talk(t, clock.Now(), web, backend); err != nil {
		t.Error(err)
	}

	noKeys(t, r, both...)

	// A restart sends nothing.
	for _, c := range both {
		agenttest.InSync(t, r.Agent, c.node.Id)
	}
	agenttest.Do(t, r.Stop())
	r = agenttest.Up(t, dir, agent.Deps{Now: clock.Now})
	for _, c := range both {
		c.Connect(agenttest.Dial(t, r.Addrs().XDS))
		agenttest.InSync(t, r.Agent, c.node.Id)
	}
	agenttest.ByAPI(t, r.Store(), strings.Replace(securePair(", team: front"), "10.0.0.2", "10.0.0.3", 1))
	if got := web.next(); got != "ClusterLoadAssignment backend" {
		t.Errorf("the first that web gets after a restart is %q, want the change alone", got)
	}
}

// noKeys checks that no agent output contains private keys of proxies.
func noKeys(t *testing.T, r *agenttest.Running, clients ...*secureClient) {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", r.Addrs().API)
	}}}
	defer hc.CloseIdleConnections()
	shown := map[string]string{"the log": r.Logs.String()}
	for _, path := range []string{
		"/v1/status", "/v1/dataplanes", "/v1/dataplanes/default/web/status", "/meshes/default/dataplanes/web/_config",
		"/meshes/default/dataplanes/web/_rules",
		"/meshes/default", "/metrics", "/readyz?verbose", "/v1/history/meshes/default",
	} {
		resp, err := hc.Get("http://localhost" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, resp.Status, err)
		}
		shown[path] = string(body)
	}
	for _, c := range clients {
		pem := c.key()
		line := strings.Split(string(pem), "\n")[1]
		for _, bad := range []string{"PRIVATE KEY", line, base64.StdEncoding.EncodeToString(pem)[:60]} {
			for where, text := range shown {
				if strings.Contains(text, bad) {
					t.Errorf("%s shows a private key: %.40s", where, bad)
				}
			}
		}
	}
	if !strings.Contains(shown["/meshes/default/dataplanes/web/_config"], `"name":"`+ownSecret+`"`) {
		t.Error("_config does not name the secret")
	}
	for _, want := range []string{
		`nearside_certificate_expiration_timestamp_seconds{certificate="authority",mesh="default"} `,
		`nearside_certificate_expiration_timestamp_seconds{certificate="proxy",mesh="default"} `,
	} {
		if !strings.Contains(shown["/metrics"], want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	// The keys are on disk, readable only for the agent.
	n := 0
	agenttest.Do(t,
		filepath.Walk(filepath.Join(r.Dir, "state", "identity"), func(path string, st os.FileInfo, err error) error {
			if err == nil && st.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, st.Mode())
			}
			n++
			return err
		}))
	if n != 6 { // two directories, two authorities, two proxies
		t.Errorf("%d files and directories", n)
	}
}

// TestSecretsStayOnTheNode checks that no keys are sent over TCP, where clients are not
// authenticated.
func TestSecretsStayOnTheNode(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "xds.tcp=127.0.0.1:0", "xds.insecure=true")
	agenttest.ByAPI(t, r.Store(), secureMesh("ca")+securePair(""))
	c := newSecureClient(t, "web")
	conn, err := grpc.NewClient(r.Addrs().XDSTCP.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.Connect(conn)
	c.until("all but the secrets", func() bool {
		return len(c.has[draft.TypeListener]) == 2 && len(c.has[draft.TypeEndpoint]) == 1
	})
	agenttest.InSync(t, r.Agent, c.node.Id)
	agenttest.ByAPI(t, r.Store(), strings.Replace(securePair(""), "10.0.0.2", "10.0.0.3", 1))
	if got := c.next(); got != "ClusterLoadAssignment backend" || len(c.secrets) > 0 {
		t.Errorf("got %q and %d secrets", got, len(c.secrets))
	}
	if !strings.Contains(r.Logs.String(), "requests certificates over TCP") {
		t.Error("the request is not logged")
	}
}

// TestRenewalWakesTheLoop checks that certificates are renewed in time without other events, and
// that the loop sleeps between renewals.
func TestRenewalWakesTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := agenttest.Memory(t), agenttest.NewPublisher("default.web")
		agenttest.ByAPI(t, s, "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, "+
			"dpCert: {rotation: {expiration: 10h}}}]}\n---\n"+agenttest.DataplaneText("default", "web", "10.0.0.1"))
		r := reconcile.New(reconcile.Options{Store: s, Publisher: p})
		go r.Run(t.Context())
		synctest.Wait()
		rank := draft.Rank(draft.TypeSecret)
		first := p.Of("default.web")
		if p.Take() != 1 || len(first.Resources[rank]) != 2 {
			t.Fatalf("%d secrets at the start", len(first.Resources[rank]))
		}
		time.Sleep(7 * time.Hour)
		synctest.Wait()
		if n := p.Take(); n != 0 || p.Of("default.web") != first {
			t.Errorf("%d passes in the first seven hours of ten", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		second := p.Of("default.web")
		if n := p.Take(); n != 1 || second.Versions[rank] == first.Versions[rank] {
			t.Errorf("%d passes in the eighth hour, renewed: %v", n, second.Versions[rank] != first.Versions[rank])
		}
		for other := range draft.Types {
			if other != rank && first.Versions[other] != second.Versions[other] {
				t.Errorf("%s has changed too", draft.Types[other])
			}
		}
		var was, is tlsv3.Secret
		agenttest.Do(t, errors.Join(proto.Unmarshal(first.Resources[rank][1].Body(), &was),
			proto.Unmarshal(second.Resources[rank][1].Body(), &is)))
		if !proto.Equal(&was, &is) {
			t.Error("the authority has changed")
		}
	})
}

// TestCertificatesCannotBeMade checks that the mesh and its proxies report the reason, and that
// proxies retain their certificates.
func TestCertificatesCannotBeMade(t *testing.T) {
	s, p, dir := agenttest.Memory(t), agenttest.NewPublisher("default.web"), filepath.Join(t.TempDir(), "identity")
	agenttest.ByAPI(t, s, secureMesh("ca")+"---\n"+
		agenttest.PortedText("default", "web", "10.0.0.1"))
	start := func() *reconcile.Reconciler {
		return reconcile.New(reconcile.Options{Store: s, Publisher: p,
			Certificates: identity.Open(identity.Options{Dir: dir})})
	}
	if got := agenttest.Pass(start()); got != nil {
		t.Fatalf("%q", got)
	}
	first := p.Has["default.web"]
	agenttest.Do(t, os.Chmod(filepath.Join(dir, "default", "ca-ca.pem"), 0o644))
	r := start()
	got := agenttest.Pass(r)
	if len(got) != 2 || !strings.HasPrefix(got[0], "error Dataplane/default/web: no new config can be computed, "+
		"so the proxy keeps its current one: mtls.backends[0] (ca): ") || !strings.HasPrefix(got[1],
		"error Mesh/default: no certificates can be issued, so proxies keep their current ones: mtls.backends[0] (ca): ") ||
		!strings.Contains(got[1], "is accessible to other users") {
		t.Errorf("%q", got)
	}
	agenttest.Do(t, os.Chmod(filepath.Join(dir, "default", "ca-ca.pem"), 0o600))
	if got := agenttest.Pass(r); got != nil || p.Has["default.web"].Versions != first.Versions {
		t.Errorf("once mended: %q, the same config: %v", got, p.Has["default.web"].Versions == first.Versions)
	}
}
