package uitest_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// Texts that a mesh of others may contain.
var hostileTexts = map[string]string{
	"markup":    `<img src=x onerror="window.owned=1"><script>window.owned=2</script>&amp;"'` + "`",
	"direction": "\u202eevil\u2066\u0627\u0644",
	"long":      strings.Repeat("endless", 1500),
}

// spoil is a script that appends a text to each name and sentence in the answers of the API. The
// agent itself refuses most of these texts. The page must not depend on that.
const spoil = `(() => {
	const text = TEXT, real = window.fetch;
	const names = new Set(("name mesh service instance node nodeId zone reason detail message error title field path file author " +
		"source address why value cluster hint command userAgent note description summary text sentence remedy problem subject " +
		"namespace to from destination body line server host domain owner label").split(" "));
	const walk = (v, key, all) => {
		if (typeof v === "string") return (all || names.has(key)) && !/^\d{4}-\d\d-\d\dT/.test(v) ? v + text : v;
		if (Array.isArray(v)) return v.map(x => walk(x, key, all));
		if (v && typeof v === "object") return Object.fromEntries(Object.entries(v).map(([k, x]) =>
			[all ? k + text : k, walk(x, k, key !== undefined && (all || k === "tags" || k === "labels"))]));
		return v;
	};
	window.fetch = async (...args) => {
		const answer = await real(...args);
		if (!String(args[0]).startsWith("api/") || !/json/.test(answer.headers.get("Content-Type") ?? "")) return answer;
		return new Response(JSON.stringify(walk(await answer.json())), {status: answer.status, headers: answer.headers});
	};
})()`

// hostile opens each view with hostile texts in all answers.
func hostile(t *testing.T, b *chromium.Browser, n *node, views []shown) {
	for what, text := range hostileTexts {
		t.Run(what, func(t *testing.T) {
			encoded, _ := json.Marshal(text)
			p := b.Page(t)
			p.Before(strings.Replace(spoil, "TEXT", string(encoded), 1))
			p.Resize(375, 720)
			url := open(t, p, n)
			for _, v := range views {
				t.Run(v.name, func(t *testing.T) {
					p := p.With(t)
					p.Open(url + v.hash)
					p.Until(`document.querySelector("main h1") && document.querySelector("main .view")`)
					p.Quiet()
					for _, w := range p.TooWide() {
						t.Errorf("wider than the window: %s", w)
					}
					harmless(t, p)
					picture(t, p, v.name+"-"+what)
					// A request for a spoiled name fails, which the view says.
					failed := regexp.MustCompile(`the server responded with a status of 4\d\d`)
					if f := slices.DeleteFunc(p.Faults(), failed.MatchString); len(f) > 0 {
						t.Errorf("errors of the page: %q", f)
					}
				})
			}
		})
	}
}

// harmless fails if text became markup, if marks of direction can reorder other text, or if a text
// is so long that it hides the rest.
func harmless(t *testing.T, p *chromium.Page) {
	t.Helper()
	var found []string
	p.Eval(`(() => {
		const out = [];
		if (window.owned) out.push("a script of a name has run");
		for (const e of document.querySelectorAll("main img, main script, main iframe")) out.push("markup: " + e.outerHTML.slice(0, 100));
		const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		for (let n; (n = walker.nextNode());) {
			const e = n.parentElement;
			if (!e.checkVisibility()) continue;
			if (n.data.length > 3000 && !e.closest("pre, textarea")) out.push(n.data.length + " characters in " + e.outerHTML.slice(0, 80));
			if (!/[\u202a-\u202e\u2066-\u2069]/.test(n.data)) continue;
			let isolated = false;
			for (let x = e; x && x !== document.body; x = x.parentElement) {
				if (x.closest("svg")) { isolated = true; break }
				const s = getComputedStyle(x);
				if (x.matches("bdi, textarea, code, pre, td, th, option") || /isolate|plaintext/.test(s.unicodeBidi) ||
					s.display !== "inline") { isolated = x.textContent.trim() === n.data.trim() || /isolate|plaintext/.test(s.unicodeBidi) ||
					x.matches("bdi"); break }
			}
			if (!isolated) out.push("marks of direction in " + e.outerHTML.slice(0, 140));
		}
		return out.slice(0, 6);
	})()`, &found)
	for _, f := range found {
		t.Error(f)
	}
}
