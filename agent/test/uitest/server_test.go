package uitest_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// serve runs "nearside ui" for the agent until the test ends. It returns the URL of the page, which
// begins a session once, and the URL without the key.
func serve(t testing.TB, n *node, args ...string) (once, plain string) {
	t.Helper()
	cmd := n.command(t.Context(), append([]string{"ui", "--no-open", "-o", "json"}, args...)...)
	cmd.Cancel = nil
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	agenttest.Do(t, err, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("nearside ui: %v\n%s", err, log.String())
		}
	})
	var doc struct{ URL string }
	if err := json.NewDecoder(out).Decode(&doc); err != nil {
		t.Fatalf("nearside ui prints no URL: %v\n%s", err, log.String())
	}
	u, err := url.Parse(doc.URL)
	agenttest.Do(t, err)
	return doc.URL, "http://" + u.Host + "/"
}

// open serves the page, opens it, and returns its URL.
func open(t testing.TB, p *chromium.Page, n *node, args ...string) string {
	t.Helper()
	once, plain := serve(t, n, args...)
	p.Open(once)
	p.Until(`document.querySelector("#nav a")`)
	return plain
}
