package agent_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"google.golang.org/grpc"
)

const (
	ownSecret       = "identity_cert:secret:default"
	authoritySecret = "mesh_ca:secret:default"
)

// secureMesh returns a mesh with mTLS whose first backend is enabled.
func secureMesh(backends ...string) string {
	return "---\ntype: Mesh\nname: default\nmtls:\n  enabledBackend: " + backends[0] +
		"\n  backends:\n  - {type: builtin, name: " + strings.Join(backends, "}\n  - {type: builtin, name: ") + "}\n"
}

// securePair returns the dataplanes web and backend. web dials backend.
func securePair(tags string) string {
	return "---\n{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
		"tags: {kuma.io/service: web" + tags + "}}], outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}\n" +
		"---\n{type: Dataplane, mesh: default, name: backend, networking: {address: 10.0.0.2, inbound: [{port: 80, " +
		"tags: {kuma.io/service: backend}}]}}\n"
}

// hand is a manually set clock.
type hand struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hand) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hand) add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// secureClient is an Envoy that also subscribes to its secrets.
type secureClient struct {
	*proxyClient
	secrets map[string]*tlsv3.Secret
}

func newSecureClient(t *testing.T, name string) *secureClient {
	p := newProxyClient(t, &core.Node{Id: "default." + name, UserAgentName: "envoy"})
	p.has[draft.TypeSecret] = map[string]string{}
	c := &secureClient{p, map[string]*tlsv3.Secret{}}
	p.seen = func(url string, r *discoveryv3.Resource) {
		if url != draft.TypeSecret {
			return
		}
		s := &tlsv3.Secret{}
		if err := r.Resource.UnmarshalTo(s); err != nil {
			t.Error(err)
		}
		c.secrets[r.Name] = s
	}
	return c
}

func (c *secureClient) Connect(conn *grpc.ClientConn) {
	c.t.Helper()
	c.proxyClient.Connect(conn, true)
	agenttest.Do(c.t, c.delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeSecret,
		ResourceNamesSubscribe:  []string{ownSecret, authoritySecret},
		InitialResourceVersions: maps.Clone(c.has[draft.TypeSecret])}))
}

// ready receives the first config.
func (c *secureClient) ready() {
	c.t.Helper()
	c.until("its config and secrets", func() bool {
		return len(c.secrets) == 2 && len(c.has[draft.TypeListener]) > 0 &&
			len(c.has[draft.TypeEndpoint]) == len(c.names(draft.TypeEndpoint))
	})
}

func (c *secureClient) key() []byte {
	return c.secrets[ownSecret].GetTlsCertificate().GetPrivateKey().GetInlineBytes()
}

func (c *secureClient) chain() []byte {
	return c.secrets[ownSecret].GetTlsCertificate().GetCertificateChain().GetInlineBytes()
}

func (c *secureClient) cert() *x509.Certificate {
	c.t.Helper()
	pair, err := tls.X509KeyPair(c.chain(), c.key())
	if err != nil {
		c.t.Fatal(err)
	}
	return pair.Leaf
}

// config returns the TLS config that Envoy builds from the secrets and a SAN matcher.
func (c *secureClient) config(now time.Time, peers string) *tls.Config {
	c.t.Helper()
	pair, err := tls.X509KeyPair(c.chain(), c.key())
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.secrets[authoritySecret].GetValidationContext().GetTrustedCa().GetInlineBytes())
	return &tls.Config{
		// The SANs are SPIFFE IDs, not host names.
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if err == nil && !slices.ContainsFunc(s.PeerCertificates[0].URIs, func(u *url.URL) bool {
				return strings.HasPrefix(u.String(), peers)
			}) {
				err = errors.New("the peer is not " + peers)
			}
			return err
		},
	}
}

// talk opens a TLS connection from web to backend.
func talk(t *testing.T, now time.Time, web, backend *secureClient) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() {
		s := tls.Server(b, backend.config(now, "spiffe://default/"))
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("hello"))
		}
		b.Close()
		served <- err
	}()
	c := tls.Client(a, web.config(now, "spiffe://default/backend"))
	_, err := io.ReadFull(c, make([]byte, 5))
	a.Close()
	return errors.Join(err, <-served)
}
