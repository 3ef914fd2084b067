package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestSelfForward sends one request to each inbound of a real Envoy. Requests to the inbounds with
// the warning must return to Envoy until the request times out, and all others must reach a
// workload.
func TestSelfForward(t *testing.T) {
	envoytest.Find(t)
	var inbounds []string
	var at []string
	loops := map[int]bool{}
	add := func(loop bool, format string, args ...any) {
		loops[len(inbounds)] = loop
		inbounds = append(inbounds, "{tags: {kuma.io/service: s, kuma.io/protocol: http}, "+fmt.Sprintf(format, args...)+"}")
	}
	workload := func(host string, port int) int {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		agenttest.Do(t, err)
		srv := &http.Server{ReadHeaderTimeout: agenttest.Patience,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })}
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close(); <-served })
		return l.Addr().(*net.TCPAddr).Port
	}
	port := func(host string) int {
		p := freePort(t)
		at = append(at, net.JoinHostPort(host, strconv.Itoa(p)))
		return p
	}
	const own = "127.0.0.32"
	add(true, "port: %d", port(own))
	p := port(own)
	add(true, "port: %d, servicePort: %d, serviceAddress: %s", p, p, own)
	p = port(own)
	add(true, "port: %d, serviceAddress: '::ffff:%s'", p, own)
	p = port("127.0.0.1")
	add(true, "port: %d, address: 127.0.0.1, serviceAddress: 0.0.0.0", p)
	p, q := port(own), port(own)
	add(true, "port: %d, servicePort: %d", p, q)
	add(true, "port: %d, servicePort: %d", q, p)
	add(false, "port: %d, servicePort: %d", port(own), workload(own, 0))
	p = port(own)
	add(false, "port: %d, serviceAddress: 127.0.0.1", workload("127.0.0.1", p))
	p = port("127.0.0.33")
	add(false, "port: %d, address: 127.0.0.33, serviceAddress: %s", workload(own, p), own)
	p, q = port(own), port(own)
	add(false, "port: %d, servicePort: %d", p, q) // through another inbound
	add(false, "port: %d, servicePort: %d", q, workload(own, 0))

	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), "{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: default, name: web, "+
		"networking: {address: "+own+", inbound: ["+strings.Join(inbounds, ", ")+"]}}\n")
	e := startEnvoy(t, r.Agent, "web")
	var warned string
	known, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	for _, p := range known.Problems {
		warned += p.Reason + "\n"
	}
	for i, to := range at {
		patience := agenttest.Patience
		if loops[i] {
			patience = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to, nil)
		agenttest.Do(t, err)
		status := 0
		if got, err := http.DefaultClient.Do(req); err == nil {
			status = got.StatusCode
			_ = got.Body.Close()
		}
		cancel()
		if loops[i] == (status == http.StatusAccepted) {
			t.Errorf("inbound %d, %s: the status is %d", i, inbounds[i], status)
		}
		if got := strings.Contains(warned, fmt.Sprintf("networking.inbound[%d]: it forwards to itself", i)); got != loops[i] {
			t.Errorf("inbound %d, %s: a warning: %v, want %v", i, inbounds[i], got, loops[i])
		}
	}
	select {
	case <-e.Ended():
		t.Error("Envoy has ended")
	default:
	}
}
