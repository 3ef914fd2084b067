package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"time"
)

// vaultDocuments are a mesh with mTLS, and a client and a server in it, each with an Envoy.
const vaultDocuments = `---
type: Mesh
name: vault
mtls:
  enabledBackend: ca
  backends: [{name: ca, type: builtin}]
---
{type: Dataplane, mesh: vault, name: clerk, networking: {address: 127.0.0.1, inbound: [{port: %[1]d, servicePort: 1, tags: {kuma.io/service: clerk, kuma.io/protocol: http}}], outbound: [{port: %[2]d, tags: {kuma.io/service: ledger}}]}}
---
{type: Dataplane, mesh: vault, name: ledger, networking: {address: 127.0.0.1, inbound: [{port: %[3]d, servicePort: %[4]d, tags: {kuma.io/service: ledger, kuma.io/protocol: http}}]}}
`

// permissionDocument allows the requests of the clerk.
const permissionDocument = `---
type: MeshTrafficPermission
mesh: vault
name: clerk-to-ledger
spec:
  targetRef: {kind: MeshService, name: ledger}
  from:
  - targetRef: {kind: MeshService, name: clerk}
    default: {action: Allow}
`

// showPermission connects two Envoys over mTLS, where a permission decides whether a request is
// allowed.
func showPermission(ctx context.Context, a *agent, dir, envoy string) error {
	step("Start two Envoys in a mesh with mutual TLS. Without a permission no client has access, and explain shows this.")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "the books")
	}))
	defer s.Close()
	in, out, err := freePorts()
	if err != nil {
		return err
	}
	ledger, _, err := freePorts()
	if err != nil {
		return err
	}
	if err := a.apply(ctx,
		fmt.Sprintf(vaultDocuments, in, out, ledger, s.Listener.Addr().(*net.TCPAddr).Port)); err != nil {
		return err
	}
	for _, name := range []string{"clerk", "ledger"} {
		p, err := startEnvoy(ctx, a, dir, envoy, "vault", name)
		if err != nil {
			return err
		}
		defer p.stop()
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/", out)
	if err := status(ctx, url, http.StatusForbidden); err != nil {
		return err
	}
	if err := a.explain(ctx, out); err == nil {
		return fmt.Errorf("the request is denied, and explain does not say so")
	}

	step("Apply the permission. The next request gets through.")
	if err := a.apply(ctx, permissionDocument); err != nil {
		return err
	}
	if err := status(ctx, url, http.StatusOK); err != nil {
		return err
	}
	if err := a.explain(ctx, out); err != nil {
		return err
	}

	step("Take it away again. That holds for connections that are open, too.")
	if err := a.run(ctx, "delete", "meshtrafficpermission", "-m", "vault", "clerk-to-ledger"); err != nil {
		return err
	}
	return status(ctx, url, http.StatusForbidden)
}

// explain requests an explanation of the clerk's request. An error is a negative result.
func (a *agent) explain(ctx context.Context, port int) error {
	args := []string{"explain", "request", "-m", "vault", "--from", "clerk", "--to", fmt.Sprintf("127.0.0.1:%d", port)}
	out, err := exec.CommandContext(ctx, a.binary, append([]string{"--socket", a.socket}, args...)...).Output()
	fmt.Printf("    $ nearside explain request -m vault --from clerk --to 127.0.0.1:%d | head -n 1\n    %s\n",
		port, firstLine(out))
	return err
}

func firstLine(text []byte) []byte {
	for i, c := range text {
		if c == '\n' {
			return text[:i]
		}
	}
	return text
}

// status repeats a request until the response has the wanted status.
func status(ctx context.Context, url string, want int) error {
	last := "nothing"
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			last = resp.Status
			if resp.StatusCode == want {
				fmt.Printf("    $ curl -s -o /dev/null -w '%%{http_code}' %s\n    %d\n", url, want)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s is answered with %s, not with %d; the logs of the Envoys are in %s",
		url, last, want, os.TempDir())
}
