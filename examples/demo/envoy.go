package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// shopDocument is a Dataplane of one version of the shop.
const shopDocument = `---
{type: Dataplane, mesh: default, name: shop-%[1]s, networking: {address: 127.0.0.1, inbound: [{port: %[2]d, tags: {kuma.io/service: shop, kuma.io/protocol: http, version: %[1]s}}]}}
`

// frontDocument is a Dataplane with an outbound to the shop.
const frontDocument = `---
{type: Dataplane, mesh: default, name: front, networking: {address: 127.0.0.1, inbound: [{port: %d, servicePort: 1, tags: {kuma.io/service: front, kuma.io/protocol: http}}], outbound: [{port: %d, tags: {kuma.io/service: shop}}]}}
`

// routeDocument routes every request for the shop to its second version.
const routeDocument = `---
type: MeshHTTPRoute
mesh: default
name: all-to-v2
spec:
  targetRef: {kind: MeshSubset, tags: {kuma.io/service: front}}
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      default:
        backendRefs: [{kind: MeshServiceSubset, name: shop, tags: {version: v2}}]
`

// showEnvoy sends requests through a real Envoy and changes a route meanwhile.
func showEnvoy(ctx context.Context, a *agent, dir, envoy string) error {
	step("Start a real Envoy as the proxy of front, which reaches two versions of a shop.")
	documents := ""
	for _, version := range []string{"v1", "v2"} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, version)
		}))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true) // as the Envoy of a service accepts it
		s.Start()
		defer s.Close()
		documents += fmt.Sprintf(shopDocument, version, s.Listener.Addr().(*net.TCPAddr).Port)
	}
	in, out, err := freePorts()
	if err != nil {
		return err
	}
	if err := a.apply(ctx, documents+fmt.Sprintf(frontDocument, in, out)); err != nil {
		return err
	}
	proxy, err := startEnvoy(ctx, a, dir, envoy, "default", "front")
	if err != nil {
		return err
	}
	defer proxy.stop()

	url := fmt.Sprintf("http://127.0.0.1:%d/", out)
	both := map[string]int{}
	for began := time.Now(); both["v1"] == 0 || both["v2"] == 0; {
		version, err := ask(ctx, url)
		switch {
		case err == nil:
			both[version]++
		case ctx.Err() != nil || time.Since(began) > 20*time.Second:
			return fmt.Errorf("the Envoy does not answer: %w\n%s", err, proxy.said())
		default:
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	fmt.Printf("    $ curl %s      answered by both versions\n", url)

	step("Send everything to the second version. Requests continue meanwhile, and none fails.")
	changed := make(chan error, 1)
	go func() { changed <- a.apply(ctx, routeDocument) }()
	asked, after := 0, 0
	for after < 50 {
		version, err := ask(ctx, url)
		if err != nil {
			return fmt.Errorf("a request was lost in the change: %w", err)
		}
		asked++
		if after++; version == "v1" {
			after = 0
		}
		if asked > 20_000 {
			return errors.New("the route does not come into force")
		}
	}
	if err := <-changed; err != nil {
		return err
	}
	fmt.Printf("    %d requests, none failed; the last %d were answered by v2\n", asked, after)
	if err := a.run(ctx, "explain", "request", "--from", "front", "--to", fmt.Sprintf("127.0.0.1:%d", out)); err != nil {
		return err
	}
	return showLog(ctx, a, url)
}

// logDocument makes the agent write and rotate the access log of front.
const logDocument = `---
type: MeshAccessLog
mesh: default
name: front
spec:
  targetRef: {kind: MeshSubset, tags: {kuma.io/service: front}}
  to:
  - targetRef: {kind: Mesh}
    default:
      backends:
      - type: File
        file:
          path: %s
          rotation: {maxFileSize: 10, maxFiles: 3}
          format: {type: Plain, plain: "%%REQ(:METHOD)%% %%REQ(:PATH)%% %%RESPONSE_CODE%% by %%UPSTREAM_HOST%%"}
`

// showLog enables an access log and shows its lines.
func showLog(ctx context.Context, a *agent, url string) error {
	step("Log the requests of front. The agent writes and rotates the file; Envoy hands it the lines.")
	if err := a.apply(ctx,
		fmt.Sprintf(logDocument, filepath.Join(filepath.Dir(a.socket), "..", "logs", "front.log"))); err != nil {
		return err
	}
	if err := a.run(ctx, "wait", "meshaccesslog/front"); err != nil {
		return err
	}
	http.DefaultClient.CloseIdleConnections() // connections from before the change are not logged
	for _, path := range []string{"cart", "checkout"} {
		if _, err := ask(ctx, url+path); err != nil {
			return err
		}
	}
	for began := time.Now(); time.Since(began) < 20*time.Second; { // Envoy writes the log line shortly after the response
		out, err := exec.CommandContext(ctx, a.binary, "--socket", a.socket,
			"logs", "access", "--dataplane", "front").Output()
		if err != nil {
			return fmt.Errorf("nearside logs: %w", err)
		}
		if bytes.Contains(out, []byte("/checkout")) {
			return a.run(ctx, "logs", "access", "--dataplane", "front")
		}
	}
	return errors.New("the log has no line for /checkout")
}

// proxy is a running Envoy.
type proxy struct {
	cmd *exec.Cmd
	log string
}

// startEnvoy starts an Envoy with the bootstrap of a dataplane.
func startEnvoy(ctx context.Context, a *agent, dir, envoy, mesh, name string) (*proxy, error) {
	file := filepath.Join(dir, name+".yaml")
	if err := a.run(ctx, "bootstrap", "--mesh", mesh, "--name", name, "--write", file); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(envoy, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", envoy, err)
	}
	return &proxy{cmd, log.Name()}, nil
}

// said returns Envoy's log.
func (p *proxy) said() []byte {
	text, _ := os.ReadFile(p.log)
	return text
}

func (p *proxy) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// ask sends a request and returns the response body.
func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if err != nil || len(text) == 0 {
		return "", errors.Join(err, io.ErrUnexpectedEOF)
	}
	return string(text[:len(text)-1]), nil
}

// freePorts returns two unused ports.
func freePorts() (a, b int, err error) {
	var ports [2]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports[0], ports[1], nil
}
