package uitest_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// export opens each view of an export, which a plain file server serves below a path.
func export(t *testing.T, b *chromium.Browser) {
	n := &node{t: t, dir: agenttest.Home(t)}
	agenttest.Do(t, fromQuickstart(n.path("resources")))
	out := filepath.Join(t.TempDir(), "review")
	cmd := n.command(t.Context(), "ui", "-f", n.path("resources"), "--export", out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s := httptest.NewServer(http.StripPrefix("/ci/7/", http.FileServer(http.Dir(out))))
	defer s.Close()
	p := b.Page(t)
	url := s.URL + "/ci/7/"
	p.Open(url)
	p.Until(`document.querySelector("#where")?.innerText.includes("export")`)
	for _, v := range viewsOf("web", "backend", "type=MeshTimeout&name=backend-timeouts") {
		t.Run(v.name, func(t *testing.T) {
			p := p.With(t)
			p.Open(url + v.hash)
			p.Until(`document.querySelector("main h1") && document.querySelector("main .view")`)
			p.Quiet()
			if text := p.Text("main"); v.name != "why" && strings.Contains(text, "Not in this export") {
				t.Errorf("the export lacks an answer:\n%s", text)
			}
			if f := p.Faults(); len(f) > 0 {
				t.Errorf("errors of the page: %q", f)
			}
			own := regexp.MustCompile("^(data:|" + regexp.QuoteMeta(url) + ")")
			if r := slices.DeleteFunc(p.Requests(), own.MatchString); len(r) > 0 {
				t.Errorf("the page requests %q", r)
			}
		})
	}
	p = p.With(t)
	p.Open(url + "#/proxies")
	p.Until(`document.querySelectorAll("main tbody tr").length === 5`)
	p.Open(url + "#/policy?mesh=default&type=MeshTimeout&name=backend-timeouts")
	p.Until(`document.querySelector("main pre")?.innerText.includes("requestTimeout")`)

	// Without a web server, browsers load no modules: the page says what to do.
	p.Open("file://" + out + "/index.html")
	p.Until(`document.body.innerText.includes("python3 -m http.server")`)
	p.Faults()
	if _, err := os.Stat(filepath.Join(out, "ui/session")); err != nil {
		t.Error(err)
	}
}
