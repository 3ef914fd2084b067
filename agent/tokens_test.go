package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// newToken creates a token with the keys in an agent's directory.
func newToken(t *testing.T, dir string, c token.Claims) string {
	t.Helper()
	if c.Audience == "" {
		c.Audience = token.AudienceXDS
	}
	if c.Subject == "" {
		c.Subject = c.Mesh + "." + c.Name
	}
	text, err := token.Open(filepath.Join(dir, "state", "tokens"), nil, nil).Create(c, time.Hour)
	agenttest.Do(t, err)
	return text
}

// TestTokens connects Envoys with various tokens over TCP, and as a local user whom no rule names.
func TestTokens(t *testing.T) {
	person := agenttest.People(t)
	dir := openDir(t)
	// The token is created before the agent starts, so the agent knows the key.
	mine := newToken(t, dir, token.Claims{Mesh: "default", Name: "we*", Services: []string{"web"}})
	r := agenttest.Up(t, dir, agent.Deps{}, "xds.tcp=127.0.0.1:0", "xds.socket.group=61000", "xds.socket.mode=0666")
	agenttest.ByAPI(t, r.Store(), secureMesh("ca")+securePair(""))
	tcp, unix := r.Addrs().XDSTCP.String(), r.Addrs().XDS
	for _, c := range []struct {
		name, socket, id, dataplane, token string
		want, detail                       string
	}{
		{"tcp without a token", tcp, "default.web", "", "", "PermissionDenied", "nearside token create"},
		{"tcp", tcp, "default.web", "", mine, "served", ""}, // no keys are sent over plain-text TCP
		{"socket", unix, "default.web", "", mine, "served key", ""},
		{"another node", unix, "default.backend", "", mine, "PermissionDenied", `the token is for "default.we*"`},
		{"another mesh", unix, "default.web", "", newToken(t, dir, token.Claims{Mesh: "other", Name: "*"}),
			"PermissionDenied", `for "other.*"`},
		{"own service", unix, "default.we2", broughtBy("we2", "web", ""), mine, "served key", ""},
		{"another's service", unix, "default.we3", broughtBy("we3", "payments", ""), mine, "PermissionDenied", "payments"},
		{"of the API", unix, "default.web", "", newToken(t, dir, token.Claims{Subject: "x", Audience: token.AudienceAPI}),
			"Unauthenticated", ""},
		{"garbled", unix, "default.web", "", mine[:len(mine)-4] + "AAAA", "Unauthenticated", ""},
		{"nonsense", unix, "default.web", "", "no-token-at-all", "Unauthenticated", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := person(stranger).Try(agenttest.Act{Do: "xds", Socket: c.socket, NodeID: c.id,
				Secret:    map[bool]string{true: ownSecret}[c.socket == unix],
				Dataplane: c.dataplane, Token: c.token})[0]
			if got.Got != c.want || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("got %s (%s), want %s (%s)", got.Got, got.Detail, c.want, c.detail)
			}
			if c.token != "" && strings.Contains(got.Detail+r.Logs.String(), c.token) {
				t.Error("the token is shown")
			}
			agenttest.Gone(t, r, c.id)
		})
	}
	// After repeated invalid tokens the agent ignores the client. Clients with valid tokens are not
	// affected.
	wrong := make([]agenttest.Act, 15)
	for i := range wrong {
		wrong[i] = agenttest.Act{Do: "xds", Socket: unix, NodeID: "default.web", Token: mine[:len(mine)-4] + "BBBB"}
	}
	var outcomes []agenttest.Outcome
	for try := 0; try < 10; try++ { // an attempt is forgotten in a second, and the machine may be slower
		outcomes = person(stranger).Try(append(wrong,
			agenttest.Act{Do: "xds", Socket: unix, NodeID: "default.web", Token: mine})...)
		if outcomes[14].Got == "ResourceExhausted" {
			break
		}
	}
	if got := outcomes[14]; got.Got != "ResourceExhausted" {
		t.Errorf("the 15th wrong token: %+v", got)
	}
	if got := outcomes[15]; got.Got != "served" {
		t.Errorf("a right token after wrong ones: %+v", got)
	}
	other := newToken(t, dir, token.Claims{Mesh: "default", Name: "web"}) // not sent before
	late := person(stranger).Try(agenttest.Act{Do: "xds", Socket: unix, NodeID: "default.web", Token: other})
	if got := late[0]; got.Got != "served" {
		t.Errorf("another right token after wrong ones: %+v", got)
	}
	status, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	if got := status.Refused; got.Total < 20 || !strings.Contains(got.Peer, "uid 61003") || got.Reason == "" {
		t.Errorf("status shows %+v", got)
	}
}

// TestRevokedStream checks that the stream of a revoked token ends within a second, and that its
// Dataplane has no grace time then. One of several attempts must be in time: the machine may delay
// the others.
func TestRevokedStream(t *testing.T) {
	dir := openDir(t)
	create := func() string {
		return newToken(t, dir, token.Claims{Mesh: "default", Name: "web", Services: []string{"web"}})
	}
	text := create() // before the agent starts, so the agent knows the key
	r := agenttest.Up(t, dir, agent.Deps{}, "xds.tcp=127.0.0.1:0")
	agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n")
	conn, err := grpc.NewClient("passthrough:///"+r.Addrs().XDSTCP.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	agenttest.Do(t, err)
	defer conn.Close()
	for try := 1; ; try++ {
		ended, gone := revokeStream(t, r, conn, text)
		if ended <= 2*time.Second && gone <= 15*time.Second {
			return
		}
		t.Logf("the stream ended after %v, and its Dataplane was deleted after %v", ended, gone)
		if try == 5 {
			t.Fatal("no stream ended in time and without a grace time")
		}
		text = create()
	}
}

// revokeStream opens a stream with a token, and revokes the token. It returns the times until the
// stream has ended and its Dataplane is deleted.
func revokeStream(t *testing.T, r *agenttest.Running, conn *grpc.ClientConn, text string) (ended, gone time.Duration) {
	t.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(
		metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+text))
	agenttest.Do(t, err)
	agenttest.Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeCluster,
		Node: &core.Node{Id: "default.web", Metadata: agenttest.Metadata(t, broughtBy("web", "web", ""))}}))
	_, err = s.Recv()
	agenttest.Do(t, err)
	stored := func() bool { return strings.Contains(agenttest.Has(r.Store()), "default.web") }
	agenttest.Eventually(t, "its Dataplane is stored", stored)
	keys := token.Open(filepath.Join(r.Dir, "state", "tokens"), nil, nil)
	c, err := keys.Verify(text, token.AudienceXDS)
	agenttest.Do(t, err)
	start := time.Now()
	agenttest.Do(t, keys.Revoke(c.ID, c.Expires))
	for err == nil {
		_, err = s.Recv()
	}
	ended = time.Since(start)
	if !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the stream ended: %v", err)
	}
	agenttest.Eventually(t, "its Dataplane is gone", func() bool { return !stored() })
	return ended, time.Since(start)
}

// issue creates a certificate. If parent is nil, it creates a CA.
func issue(t *testing.T, dir, name string, parent *tls.Certificate, dns ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		DNSNames:  dns,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IsCA:     parent == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	by, byKey := tmpl, any(key)
	if parent != nil {
		by, byKey = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, by, key.Public(), byKey)
	agenttest.Do(t, err)
	leaf, err := x509.ParseCertificate(der)
	agenttest.Do(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	agenttest.Do(t, err)
	write := func(suffix, kind string, b []byte) {
		agenttest.Write(t, filepath.Join(dir, name+suffix), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})))
	}
	write(".pem", "CERTIFICATE", der)
	write(".key", "PRIVATE KEY", secret)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestClientCertificates connects Envoys over TLS with client certificates for their node IDs.
func TestClientCertificates(t *testing.T) {
	dir := agenttest.ShortDir(t)
	ca := issue(t, dir, "ca", nil)
	issue(t, dir, "server", ca)
	agenttest.Do(t, os.Chmod(filepath.Join(dir, "server.key"), 0o600))
	r := agenttest.Up(t, dir, agent.Deps{}, "xds.tcp=127.0.0.1:0", "xds.tls.cert="+dir+"/server.pem",
		"xds.tls.key="+dir+"/server.key", "xds.tls.clientCA="+dir+"/ca.pem")
	agenttest.ByAPI(t, r.Store(), secureMesh("ca")+securePair(""))
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	for _, c := range []struct {
		name string
		cert *tls.Certificate
		id   string
		want string
	}{
		{"own node", issue(t, dir, "web", ca, "default.web"), "default.web", ""},
		{"another node", issue(t, dir, "web", ca, "default.web"), "default.backend", "PermissionDenied"},
		{"none", nil, "default.web", "PermissionDenied"},
		{"of another authority", issue(t, dir, "alien", issue(t, dir, "other", nil), "default.web"),
			"default.web", "Unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}
			if c.cert != nil {
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
			}
			conn, err := grpc.NewClient(r.Addrs().XDSTCP.String(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
			agenttest.Do(t, err)
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
			defer cancel()
			s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
			if err == nil {
				_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &core.Node{Id: c.id}, TypeUrl: draft.TypeSecret,
					ResourceNamesSubscribe: []string{ownSecret}})
				var got *discoveryv3.DeltaDiscoveryResponse
				if got, err = s.Recv(); err == nil &&
					(len(got.Resources) != 1 || !strings.Contains(string(got.Resources[0].Resource.Value), "PRIVATE KEY")) {
					t.Errorf("got %v", got)
				}
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
