package uitest_test

import (
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// huge opens the largest views with 5,000 services: each shows its data with a bounded number
// of elements.
func huge(t *testing.T, b *chromium.Browser) {
	n := newNode(t, func(dir string) error { return mesh.Write(dir, mesh.Options{Services: 5000, MTLS: true}) })
	p := b.Page(t)
	url := open(t, p, n)
	const most = 8000 // elements
	for _, v := range []struct{ name, hash, shown string }{
		{"map", "#/map?mode=graph", `document.querySelectorAll(".graph .node").length > 1`},
		{"matrix", "#/map?mode=matrix", `document.querySelector(".matrix a")`},
		{"list", "#/map?mode=list", `document.querySelectorAll("main tbody tr").length > 20`},
		{"search", "#/map?mode=list&q=billing-4993", `document.querySelector("main tbody")?.innerText.includes("billing-4993")`},
		{"proxies", "#/proxies", `document.querySelectorAll("main tbody tr").length > 20`},
		{"why", "#/why?mesh=default&from=" + mesh.Dataplane(4999) + "&to=" + mesh.Service(0), `document.querySelector(".verdict .answer")`},
		{"dns", "#/dns", `document.querySelectorAll("main tbody tr").length > 20`},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := p.With(t)
			began := time.Now()
			p.Open(url + v.hash)
			p.Until(v.shown)
			elapsed := time.Since(began)
			p.Quiet()
			var elements int
			p.Eval(`document.querySelectorAll("*").length`, &elements)
			t.Logf("%d ms, %d elements", elapsed.Milliseconds(), elements)
			if elements > most {
				t.Errorf("the view has %d elements, at most %d are allowed", elements, most)
			}
			if f := p.Faults(); len(f) > 0 {
				t.Errorf("errors of the page: %q", f)
			}
		})
	}
}
