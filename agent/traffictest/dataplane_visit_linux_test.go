package traffictest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/agenttest"
	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
)

// What comes of a visit beside the name of the server that was reached.
const (
	isClosed  = "(closed)"  // without a byte for the client
	isRefused = "(refused)" // 503 from the proxy, with its text about MeshPassthrough
)

// speech is what a client speaks.
type speech uint8

const (
	overTLS speech = iota // TLS, which verifies who answers where the client names somebody, and then a line
	aLine                 // a line, without TLS
	nothing               // it waits for the server to speak
	get                   // a request of HTTP/1.1
	get10                 // of HTTP/1.0
	getH2                 // of HTTP/2 without TLS
)

// visit is a connection of a workload, and what becomes of it.
type visit struct {
	what string
	to   string // address and port
	say  speech
	name string // SNI or Host
	alpn []string
	want string
	// pinned is true where the proxy finds the address by itself.
	pinned bool
}

// talk says what the client has to say, and hears the answer.
func (v *visit) talk(c net.Conn, w *world) (string, error) {
	switch v.say {
	case overTLS:
		return lineTo(tls.Client(c, &tls.Config{ServerName: v.name, RootCAs: w.roots, InsecureSkipVerify: v.name == "", NextProtos: v.alpn}))
	case nothing:
		return bufio.NewReader(c).ReadString('\n')
	case get:
		return requestText(c, "GET /path HTTP/1.1\r\nHost: "+v.name+"\r\nConnection: close\r\n\r\n")
	case get10:
		return requestText(c, "GET /path HTTP/1.0\r\nHost: "+v.name+"\r\n\r\n")
	case getH2:
		t := &http.Transport{Protocols: plainHTTP(false, true), DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
		defer t.CloseIdleConnections()
		return said((&http.Client{Transport: t}).Get("http://" + v.name + "/path"))
	}
	return lineTo(c)
}

// lineTo says a line and hears one.
func lineTo(c net.Conn) (string, error) {
	if _, err := io.WriteString(c, "hello, who is there?\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func requestText(c net.Conn, text string) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	return said(r, err)
}

// said is what a response says.
func said(r *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return "", err
	case r.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(b), "No routes matched this domain") && strings.Contains(string(b), "MeshPassthrough"):
		return isRefused, nil
	case r.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %s", r.StatusCode, b), nil
	}
	return string(b), nil
}

// pay makes a visit from a port and returns what came of it, and the address from which it was made. Where two visits have
// the same port, the kernel gives the second another one when it redirects it.
func (v *visit) pay(t *testing.T, node *netns, port int, w *world) (string, netip.AddrPort) {
	t.Helper()
	c, err := dialIn(node, netip.MustParseAddrPort(v.to), port, 0)
	if err != nil {
		t.Fatalf("the connection does not come to the proxy: %v", err)
	}
	defer c.Close()
	began := time.Now()
	agenttest.Do(t, c.SetDeadline(began.Add(agenttest.Patience)))
	got, err := v.talk(c, w)
	if err != nil {
		if got == "" && time.Since(began) < agenttest.Patience && !strings.Contains(err.Error(), "certificate") {
			return isClosed, addrPort(c.LocalAddr()) // the ends of a closed connection have many names
		}
		return fmt.Sprintf("%q and then %v", got, err), addrPort(c.LocalAddr())
	}
	return strings.TrimSpace(got), addrPort(c.LocalAddr())
}

// explained asks the agent what becomes of the visit. What the client says is put as commands can: TLS, a request, or
// bytes that are neither, as which requests of HTTP/1.0 count.
func (v *visit) explained(t *testing.T, api *client.Client, dataplane string) *client.Flow {
	t.Helper()
	target := client.FlowTarget{Mesh: "default", From: dataplane, To: v.to}
	var out *client.Flow
	var err error
	switch v.say {
	case get, getH2:
		out, err = api.ExplainRequest(t.Context(), client.RequestQuestion{Target: target, Path: "/path", HTTP2: v.say == getH2,
			Headers: []client.RequestHeader{{Name: "host", Value: v.name}}})
	case overTLS:
		out, err = api.ExplainConnection(t.Context(), client.ConnectionQuestion{Target: target, TLS: true, SNI: &v.name, ALPN: v.alpn})
	default:
		out, err = api.ExplainConnection(t.Context(), client.ConnectionQuestion{Target: target})
	}
	agenttest.Do(t, err)
	return out
}

// agrees holds an explanation to what has really happened: the verdict, the filter chain and the cluster.
func agrees(t *testing.T, got string, trace *match.Trace, f *client.Flow) {
	t.Helper()
	verdict := map[string]string{isClosed: "closed", isRefused: "denied"}[got]
	if verdict == "" {
		verdict = "allowed"
	}
	if f.Verdict != verdict {
		t.Errorf("the outcome is %s, and it is explained as %s: %s", got, f.Verdict, f.Reason)
	}
	if trace == nil {
		t.Error("the proxy knows nothing of the connection")
		return
	}
	chain := ""
	for _, s := range trace.Steps {
		if s.Level == match.LevelChain {
			chain = s.Choice
		}
	}
	if f.FilterChain != chain {
		t.Errorf("it went through the chain %q, and %q is explained", chain, f.FilterChain)
	}
	var clusters, explained []string
	for _, c := range trace.Targets {
		clusters = append(clusters, c.Cluster)
	}
	for _, c := range f.Clusters {
		explained = append(explained, c.Name)
	}
	if fmt.Sprint(clusters) != fmt.Sprint(explained) {
		t.Errorf("it went to the clusters %q, and %q are explained", clusters, explained)
	}
}
