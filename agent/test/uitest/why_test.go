package uitest_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// meshWithTLS enforces permissions in the quickstart.
const meshWithTLS = `type: Mesh
name: default
mtls:
  enabledBackend: ca
  backends:
    - {name: ca, type: builtin}
`

// TestWhy asks a question by keyboard, applies the suggested policy, and reads the history.
func TestWhy(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, func(dir string) error {
		if err := fromQuickstart(dir); err != nil {
			return err
		}
		return os.WriteFile(dir+"/00-mesh.yaml", []byte(meshWithTLS), 0o600)
	})
	t.Run("question", func(t *testing.T) {
		p := b.Page(t)
		url := open(t, p, n, "--write")
		p.Open(url + "#/why")
		p.Click("input[required]")
		p.Type("we")
		p.Until(`document.querySelector("[role=listbox]:not([hidden]) [role=option]")?.textContent === "web"`)
		p.Press("ArrowDown", "Enter", "Tab")
		p.Type("red")
		p.Until(`document.querySelector("[role=listbox]:not([hidden]) [role=option]")?.textContent.startsWith("redis ")`)
		p.Press("ArrowDown", "Enter", "Enter")
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Denied"`)
		has(t, p, ".verdict", "the proxy of redis rejects it", "Decided at Network filter of the proxy of redis",
			"dials 127.0.0.1:20002 for redis")
		has(t, p, ".flow .decides", "envoy.filters.network.rbac", "deny: no policy fits")
		has(t, p, ".suggestion", "type: MeshTrafficPermission", "name: allow-web-to-redis")
		has(t, p, ".command", "nearside explain connection --from web --to 127.0.0.1:20002")
		p.Until(`location.hash.includes("from=web&to=redis")`) // the question can be shared

		p.Click(".suggestion .primary")
		p.Until(`document.querySelector(".effect")?.textContent.includes("1 of 5 proxies change")`)
		p.Press("Enter") // the focus is on the button that applies it
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Allowed"`)
		has(t, p, ".answers", "allow-web-to-redis", "applied", "Permitted by")
		p.Until(`document.querySelector('.verdict a[href*="name=allow-web-to-redis"]')`)
		p.Reload()
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Allowed"`)
	})
	t.Run("history", func(t *testing.T) {
		p := b.Page(t)
		url := open(t, p, n)
		p.Open(url + "#/why?from=web&to=backend&kind=request&path=/a%3Fkey%3Dsecret-1&headers=x-user%3A%20secret-2")
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Allowed"`)
		has(t, p, ".command", `--path '/a?key=secret-1' --header x-user=secret-2`)
		var stored string
		p.Eval(`JSON.stringify({...localStorage})`, &stored)
		if !strings.Contains(stored, "x-user") || strings.Contains(stored, "secret") {
			t.Errorf("the history has %s", stored)
		}
		p.Click(".asked a")
		p.Until(`document.querySelector(".answers .notice")?.textContent.includes("no values of headers")`)
	})
	t.Run("read-only", func(t *testing.T) {
		p := b.Page(t)
		url := open(t, p, n)
		p.Open(url + "#/why?from=redis&to=backend&kind=tcp")
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Not reachable"`)
		p.Open(url + "#/why?from=backend&to=redis")
		p.Until(`document.querySelector(".verdict .answer")?.textContent === "Denied"`)
		has(t, p, ".verdict", "one of the 2 dataplanes of the service backend", "Ask for another: backend-2")
		p.Until(`document.querySelector(".suggestion .primary").disabled`)
		has(t, p, ".suggestion", "Start nearside ui --write", "nearside apply -f - <<'END'")
		p.Click(".suggestion button:not(:disabled):not(.copy)")
		p.Until(`document.querySelector(".effect")?.textContent.includes("1 of 5 proxies change")`)
	})
	t.Run("faults", func(t *testing.T) {
		p := b.Page(t)
		url := open(t, p, n)
		p.Open(url + "#/why?from=absent&to=redis")
		p.Until(`document.querySelector('.answers [role=alert]')?.textContent.includes("no dataplane \"absent\"")`)
		has(t, p, ".answers", "No Dataplane and no service of mesh default has the name absent")
		p.Open(url + "#/why?from=web&to=x")
		p.Until(`document.querySelector('.answers [role=alert]')?.textContent.includes("HOST:PORT")`)
	})
}

// TestHealth breaks a resource file, and reads the problem on the page.
func TestHealth(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	p.Open(open(t, p, n) + "#/health")
	p.Until(`document.querySelector(".verdict .answer")?.textContent === "1 warning"`)
	has(t, p, ".problems", "policy-no-effect", "mesh default has no mTLS", "nearside explain policy MeshTrafficPermission")
	has(t, p, ".grid", "disconnected", "9 resources", "nearside bootstrap --name NAME")

	hostile := []byte("type: Dataplane\nname: <b>redis\u202e</b>\n")
	agenttest.Do(t, os.WriteFile(n.path("resources/redis.yaml"), hostile, 0o600))
	p.Until(`document.querySelector(".verdict .answer").textContent === "3 errors and 1 warning"`) // by itself
	p.Until(`document.querySelector(".verdict").textContent.includes("10 of 11 checks pass, 1 degraded")`)
	has(t, p, ".problems", "file-fault", "redis.yaml", "nearside validate -f "+n.path("resources/redis.yaml"))
	p.Until(`[...document.querySelectorAll("tbody tr")].some(r => r.textContent.includes("degraded"))`)
	var markup int
	p.Eval(`document.querySelectorAll("main b").length`, &markup)
	if markup > 0 {
		t.Errorf("%d elements from a name", markup)
	}

	agenttest.Do(t, os.WriteFile(n.path("resources/00-mesh.yaml"), []byte(meshWithTLS), 0o600))
	agenttest.Do(t, os.Remove(n.path("resources/redis.yaml")))
	agenttest.Do(t, fromQuickstartFile(n.path("resources"), "redis.yaml"))
	p.Until(`document.querySelector(".verdict .answer").textContent === "No problems"`)
	p.Until(`document.querySelector(".events")?.textContent.includes("changed Mesh/default")`)
	p.Reload()
	p.Until(`document.querySelector(".grid")?.textContent.includes("CA of default")`)
	has(t, p, ".verdict", "The node is ready", "Measured")
}

func fromQuickstartFile(dir, name string) error {
	text, err := os.ReadFile(quickstart + "/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile(dir+"/"+name, text, 0o600)
}

// has waits until the text of an element contains all phrases.
func has(t *testing.T, p *chromium.Page, selector string, phrases ...string) {
	t.Helper()
	for _, phrase := range phrases {
		p.Until(`document.querySelector(` + strconv.Quote(selector) + `)?.innerText.includes(` + strconv.Quote(phrase) + `)`)
	}
}
