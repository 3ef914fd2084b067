package chromium

import (
	"fmt"
	"strings"
	"time"
)

// Quiet waits until the page has no requests in flight, except streams, and has drawn the answers.
func (p *Page) Quiet() {
	p.t.Helper()
	late := time.After(patience)
	for calm := 0; calm < 2; {
		p.b.mu.Lock()
		open, changed := len(p.open), p.changed
		p.b.mu.Unlock()
		if open > 0 {
			select {
			case <-changed:
			case <-late:
				p.b.mu.Lock()
				defer p.b.mu.Unlock()
				p.t.Fatalf("requests without an end: %v", p.open)
			}
			calm = 0
			continue
		}
		p.Eval(`new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))`, nil)
		p.b.mu.Lock()
		if len(p.open) == 0 && p.changed == changed {
			calm++
		} else {
			calm = 0
		}
		p.b.mu.Unlock()
	}
}

// Violations runs axe-core, whose source is given, and returns its serious and critical findings.
func (p *Page) Violations(axe string) []string {
	p.t.Helper()
	var known bool
	p.Eval(`typeof axe === "object"`, &known)
	if !known {
		p.Eval(axe+"\n;0", nil)
	}
	var found []struct{ Impact, ID, Help, Where string }
	p.Eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
		.filter(v => v.impact === "serious" || v.impact === "critical")
		.map(v => ({Impact: v.impact, ID: v.id, Help: v.help,
			Where: v.nodes.slice(0, 4).map(n => n.target.join(" ") + ": " + n.html.slice(0, 160) + " " +
				(n.any[0]?.message ?? n.all[0]?.message ?? "")).join("\n    ")})))`, &found)
	var out []string
	for _, f := range found {
		out = append(out, fmt.Sprintf("axe %s %s: %s\n    %s", f.Impact, f.ID, f.Help, f.Where))
	}
	return out
}

// streams are parts of URLs of requests that have no end.
var streams = []string{"/v1/events", "follow"}

func isStream(url string) bool {
	for _, s := range streams {
		if strings.Contains(url, s) {
			return true
		}
	}
	return false
}

// track records which requests are in flight. The caller holds the mutex of the browser.
func (p *Page) track(method, id, url string) {
	switch method {
	case "Network.requestWillBeSent":
		if isStream(url) {
			return
		}
		p.open[id] = url
	case "Network.loadingFinished", "Network.loadingFailed":
		delete(p.open, id)
	case "Page.frameNavigated":
		clear(p.open)
	default:
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}
