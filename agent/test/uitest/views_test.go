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
	t.Run("tokens", func(t *testing.T) { tokens(t, b) })
	t.Run("export", func(t *testing.T) { export(t, b) })
	t.Run("huge", func(t *testing.T) { huge(t, b) })
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
				accessible(t, p)
			}
			keyboard(t, p, large)
			p.Resize(375, 720)
			p.Media("dark", true)
			p.Quiet()
			picture(t, p, v.name+"-narrow-dark")
			accessible(t, p)
			for _, w := range p.TooWide() {
				t.Errorf("wider than the window: %s", w)
			}
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

// keyboard fails if Tab misses a control, does not leave one, or shows no focus.
func keyboard(t *testing.T, p *chromium.Page, large bool) {
	t.Helper()
	most := 150 // stops on one page
	if large {
		most = 40
	}
	f := p.Keyboard(most)
	if fault := f.String(); fault != "" {
		t.Error(fault)
	}
	if f.Stops < min(f.Want, most)/2 {
		t.Errorf("Tab stops only %d times at %d controls", f.Stops, f.Want)
	}
}

// accessible fails for each serious finding of axe-core. Without axe-core, it notes that nothing is
// checked, or fails in CI.
func accessible(t *testing.T, p *chromium.Page) {
	t.Helper()
	source, err := axeSource()
	if err != nil {
		t.Run("axe", func(t *testing.T) { missing(t, fmt.Errorf("axe-core is not installed: %w", err)) })
		return
	}
	for _, v := range p.Violations(source) {
		t.Error(v)
	}
}

// missing skips a test without a tool that it needs, but fails it in CI.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// axeSource returns the source of axe-core.
var axeSource = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("bash", "../../../.ci/install-axe").Output()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(strings.TrimSpace(string(path)))
	return string(text), err
})

// picture writes a picture of the page if UITEST_PICTURES names a directory.
func picture(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	if dir := os.Getenv("UITEST_PICTURES"); dir != "" {
		mesh := strings.Split(t.Name(), "/")[1]
		agenttest.Do(t, os.WriteFile(filepath.Join(dir, mesh+"-"+name+".png"), p.Picture("png"), 0o600))
	}
}
