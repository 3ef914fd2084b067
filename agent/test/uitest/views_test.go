package uitest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// shown is a view of the page in a mesh.
type shown struct {
	name  string // of the subtest and of its picture
	hash  string
	until string // a condition: the view shows its data
}

// viewsOf returns the views for a mesh with a client, a service that it calls, and a policy.
func viewsOf(client, service, policy string) []shown {
	return []shown{
		{"health", "#/health", ""},
		{"why", "#/why?mesh=default&from=" + client + "&to=" + service, ""},
		{"map", "#/map", ""},
		{"proxies", "#/proxies", ""},
		{"proxy", "#/proxy?mesh=default&name=" + client, ""},
		{"change", "#/change", ""},
		{"history", "#/history", ""},
		{"policies", "#/policies", ""},
		{"policy", "#/policy?mesh=default&" + policy, ""},
		{"dns", "#/dns", ""},
		{"logs", "#/logs", ""},
		{"members", "#/members", ""},
	}
}

// TestUI opens each view with a small and a large mesh in one browser.
func TestUI(t *testing.T) {
	b := chromium.Start(t, resolverRules)
	t.Run("quickstart", func(t *testing.T) {
		n := newNode(t, fromQuickstart)
		views := viewsOf("web", "backend", "type=MeshTimeout&name=backend-timeouts")
		eachView(t, b.Page(t), n, false, views, "--write")
		t.Run("hostile", func(t *testing.T) { hostile(t, b, n, views) })
	})
	t.Run("origins", func(t *testing.T) { origins(t, b) })
	t.Run("first-policies", func(t *testing.T) { firstPolicies(t, b) })
	t.Run("restart", func(t *testing.T) { restart(t, b) })
	t.Run("large", func(t *testing.T) {
		o := mesh.Options{Services: 1000, Proxies: 300, MTLS: true}
		n := newNode(t, func(dir string) error { return mesh.Write(dir, o) })
		n.connect(o)
		eachView(t, b.Page(t), n, true, viewsOf(mesh.Dataplane(9), mesh.Service(0),
			"type=MeshTrafficPermission&name=within-billing"))
	})
}

// eachView opens views and checks each in three forms: wide and light, narrow and dark, and by
// keyboard. For a large mesh, the first two forms share one run of axe-core.
func eachView(t *testing.T, p *chromium.Page, n *node, large bool, views []shown, args ...string) {
	url := open(t, p, n, args...)
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) {
			p := p.With(t)
			defer p.Faults()
			p.Resize(1280, 800)
			p.Media("light", true)
			p.Open(url + v.hash)
			p.Until(`document.querySelector("main h1") && document.querySelector("main .view")`)
			p.Quiet()
			if v.until != "" {
				p.Until(v.until)
			}
			picture(t, p, v.name)
			if !large {
				p.Accessible(axe(t))
			}
			keyboard(t, p, large)
			p.Resize(375, 720)
			p.Media("dark", true)
			p.Quiet()
			picture(t, p, v.name+"-narrow-dark")
			p.Accessible(axe(t))
			fits(t, p)
			if f := p.Faults(); len(f) > 0 {
				t.Errorf("errors of the page: %q", f)
			}
			for _, r := range p.Requests() {
				if !strings.HasPrefix(r, url) && !strings.HasPrefix(r, "data:") {
					t.Errorf("the page requests %s", r)
				}
			}
		})
	}
}

// fits fails if a page scrolls sideways.
func fits(t *testing.T, p *chromium.Page) {
	t.Helper()
	var wide []string
	p.Eval(`(() => {
		const most = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= most) return [];
		return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > most + 1)
			.map(e => e.tagName + "." + (e.getAttribute("class") ?? "") + " " + Math.round(e.getBoundingClientRect().right)).slice(0, 8)
			.concat("the document is " + document.documentElement.scrollWidth + " wide");
	})()`, &wide)
	if len(wide) > 0 {
		t.Errorf("wider than the window: %s", strings.Join(wide, ", "))
	}
}

// keyboard walks through a page with Tab: it must reach each control and leave it again, and each
// focus must be visible.
func keyboard(t *testing.T, p *chromium.Page, large bool) {
	t.Helper()
	most := 150 // stops on one page
	if large {
		most = 40
	}
	var report struct {
		Missed, Unseen []string
		Stops, Want    int
	}
	p.Eval(`(() => {
		document.activeElement?.blur();
		scrollTo(0, 0);
		window.uitest = {seen: new Set(), unseen: [], ends: 0, tell: e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " +
			(e.getAttribute("aria-label") ?? e.textContent ?? "").trim().slice(0, 40)};
	})()`, nil)
	for range most {
		p.Press("Tab")
		var end bool
		p.Eval(`(() => {
			const e = document.activeElement, u = window.uitest;
			if (!e || e === document.body) return u.ends++ > 0; // Tab starts where the last focus was
			if (u.seen.has(e)) return true;
			u.seen.add(e);
			const ringed = x => { const s = getComputedStyle(x);
				return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== "none" };
			const r = e.getBoundingClientRect(), ring = ringed(e) || ringed(e.parentElement) ||
				e instanceof SVGElement && [...e.children].some(x => getComputedStyle(x).stroke !== "none");
			const inside = r.width > 0 && r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
			if (!ring || !inside) u.unseen.push(u.tell(e) + (ring ? " outside" : " without a ring"));
			return false;
		})()`, &end)
		if end {
			break
		}
	}
	p.Eval(`(() => {
		const u = window.uitest, visible = e => e.checkVisibility({visibilityProperty: true}) && !e.closest("[inert]");
		const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex], [contenteditable]")]
			.filter(e => e.tabIndex >= 0 && !e.disabled && visible(e) && e.type !== "hidden");
		const groups = new Set();
		const want = all.filter(e => { if (e.type !== "radio") return true;
			const first = !groups.has(e.name); groups.add(e.name); return first });
		const missed = want.length > `+fmt.Sprint(most)+` ? [] : all.filter(e => !u.seen.has(e) && e.type !== "radio").map(u.tell);
		return {Missed: missed.slice(0, 8), Unseen: u.unseen.slice(0, 8), Stops: u.seen.size, Want: want.length};
	})()`, &report)
	if len(report.Missed) > 0 {
		t.Errorf("Tab stops %d times, and never at %q", report.Stops, report.Missed)
	}
	if report.Stops < min(report.Want, most)/2 {
		t.Errorf("Tab stops only %d times at %d controls", report.Stops, report.Want)
	}
	if len(report.Unseen) > 0 {
		t.Errorf("the focus is not visible: %q", report.Unseen)
	}
}

// axe returns the source of axe-core, or "" with a message if it is not installed.
var axeSource = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("bash", "../../../.ci/install-axe").Output()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(strings.TrimSpace(string(path)))
	return string(text), err
})

func axe(t *testing.T) string {
	t.Helper()
	text, err := axeSource()
	if err != nil {
		t.Logf("axe-core is not installed: %v", err)
	}
	return text
}

// picture writes a picture of the page if UITEST_PICTURES names a directory.
func picture(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	if dir := os.Getenv("UITEST_PICTURES"); dir != "" {
		mesh := strings.Split(t.Name(), "/")[1]
		agenttest.Do(t, os.WriteFile(filepath.Join(dir, mesh+"-"+name+".png"), p.Picture("png"), 0o600))
	}
}
