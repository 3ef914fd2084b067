package traffictest_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/agenttest"
)

// world is the servers outside of the node, each at addresses of its own. A server says its name to whoever reaches it.
type world struct {
	t     *testing.T
	ns    *netns
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	roots *x509.CertPool
	names map[string][]netip.Addr // what a resolver knows

	wg     sync.WaitGroup
	mu     sync.Mutex
	ended  bool
	open   map[io.Closer]bool
	counts map[string]int // connections, by server
}

func newWorld(t *testing.T, ns *netns, names map[string][]string) *world {
	t.Helper()
	w := &world{t: t, ns: ns, roots: x509.NewCertPool(), names: map[string][]netip.Addr{}, open: map[io.Closer]bool{}, counts: map[string]int{}}
	for name, list := range names {
		for _, a := range list {
			w.names[name] = append(w.names[name], netip.MustParseAddr(a))
		}
	}
	var err error
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	w.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, w.ca, w.ca, w.key.Public(), w.key)
	agenttest.Do(t, err)
	w.ca, err = x509.ParseCertificate(der)
	agenttest.Do(t, err)
	w.roots.AddCert(w.ca)
	t.Cleanup(func() {
		w.mu.Lock()
		w.ended = true
		for c := range w.open {
			c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

// resolve is the resolver of the world.
func (w *world) resolve(name string) []netip.Addr { return w.names[name] }

// reached is how many connections a server has had.
func (w *world) reached(server string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[server]
}

// certificate is one for names, of the world's authority.
func (w *world) certificate(names ...string) tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(w.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names,
		NotBefore: w.ca.NotBefore, NotAfter: w.ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, w.ca, key.Public(), w.key)
	agenttest.Do(w.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// hold keeps what is to be closed in the end; it closes it at once where the end has come.
func (w *world) hold(c io.Closer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		c.Close()
	}
	w.open[c] = true
}

func (w *world) listen(at string) net.Listener {
	w.t.Helper()
	var l net.Listener
	var err error
	w.ns.do(func() { l, err = net.Listen("tcp", at) })
	agenttest.Do(w.t, err)
	w.hold(l)
	return l
}

// serve runs a server that handles each connection.
func (w *world) serve(server, at string, handle func(net.Conn)) {
	w.t.Helper()
	l := w.listen(at)
	w.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.count(server)
			w.hold(c)
			w.wg.Go(func() {
				handle(c)
				c.Close()
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.open, c)
			})
		}
	})
}

func (w *world) count(server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[server]++
}

// answer says the name of a server once a line has come.
func answer(server string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			fmt.Fprintln(c, server)
		}
	}
}

// tcp is a server that answers a line.
func (w *world) tcp(server, at string) { w.serve(server, at, answer(server)) }

// greeter is a server that speaks first, as MySQL does, and then waits for the client.
func (w *world) greeter(server, at string) {
	w.serve(server, at, func(c net.Conn) {
		fmt.Fprintln(c, server)
		_, _ = io.Copy(io.Discard, c)
	})
}

// tls is a server with a certificate for names. It answers whether TLS comes or a line as it is.
func (w *world) tls(server, at string, names ...string) {
	config := &tls.Config{Certificates: []tls.Certificate{w.certificate(names...)}, NextProtos: []string{"h2", "own"}}
	w.serve(server, at, func(c net.Conn) {
		r := bufio.NewReader(c)
		first, err := r.Peek(1)
		if err != nil {
			return
		}
		var said net.Conn = &replayed{Conn: c, r: r}
		if first[0] == 0x16 {
			said = tls.Server(said, config)
		}
		answer(server)(said)
	})
}

// web is an HTTP server without TLS.
func (w *world) web(server, at string) {
	l := w.listen(at)
	s := &http.Server{Protocols: plainHTTP(true, true), ReadHeaderTimeout: agenttest.Patience, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.count(server)
		fmt.Fprintln(rw, server)
	})}
	w.hold(s)
	w.wg.Go(func() { _ = s.Serve(l) })
}
