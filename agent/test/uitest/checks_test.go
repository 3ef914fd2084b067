package uitest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// goodPage passes all checks. The pages of [TestChecks] differ from it by one fault each.
const goodPage = `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Good</title>
<link rel="icon" href="data:,"><style>
a, button, input { margin: 4px } :focus-visible { outline: 2px solid #0a58ca } svg { width: 90px; height: 40px; overflow: visible }
svg a:focus-visible { outline: none } svg a:focus-visible circle { stroke: #0a58ca; stroke-width: 4 }
</style><main><h1>Good</h1><p>Text</p><a id="first" href="#/a">First</a> <button id="second">Second</button>
<label for="third">Third</label> <input id="third">
<svg aria-label="Map" role="group"><a id="fourth" href="#/b" aria-label="Fourth"><circle cx="30" cy="20" r="12" fill="#999"/></a></svg>
</main></html>`

// TestChecks breaks a good page: the check of each fault must find it, and no other one.
func TestChecks(t *testing.T) {
	b := chromium.Start(t)
	var page string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, page)
	}))
	defer s.Close()
	axe, missingAxe := axeSource()
	for _, c := range []struct{ what, before, after, finds string }{
		{"nothing", "", "", ""},
		{"no label", `<label for="third">Third</label>`, "", "axe"},
		{"little contrast", `<p>`, `<p style="color: #ccc">`, "axe"},
		{"wide", `<p>`, `<p style="width: 500px">`, "width"},
		{"console error", `</main>`, `</main><script>console.error("bad")</script>`, "console"},
		{"exception", `</main>`, `</main><script>Promise.reject(new Error("bad"))</script>`, "console"},
		{"missing file", `</main>`, `</main><script>fetch("/absent")</script>`, "console"},
		{"no ring", `</style>`, `#second:focus-visible { outline: none }</style>`, "focus button#second"},
		{"ring without contrast", `</style>`, `#first:focus-visible { outline-color: #fff }</style>`, "focus a#first"},
		{"field without a ring", `</style>`, `#third:focus-visible { outline: none }</style>`, "focus input#third"},
		{"SVG without a ring", `stroke: #0a58ca`, `stroke: none`, "focus a#fourth"},
		{"SVG that always has a ring", `svg a:focus-visible circle`, `svg a circle`, "focus a#fourth"},
		{"outside", `</style>`, `#second { position: absolute; left: -999px }</style>`, "focus button#second"},
		{"trap", `</main>`, `</main><script>document.querySelector("#third").onkeydown = e => e.preventDefault()</script>`,
			"focus never at"},
		{"not reached", `</main>`, `</main><script>document.querySelector("#first").onkeydown = e => {
			e.preventDefault(); document.querySelector("#third").focus() }</script>`, "focus never at"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.finds == "axe" && missingAxe != nil {
				missing(t, missingAxe)
			}
			page = strings.Replace(goodPage, c.before, c.after, 1)
			p := b.Page(t)
			p.Resize(375, 600)
			p.Open(s.URL + "/")
			p.Quiet()
			var found []string
			add := func(check string, faults ...string) {
				for _, f := range faults {
					found = append(found, check+" "+f)
				}
			}
			add("console", p.Faults()...)
			add("width", p.TooWide()...)
			if missingAxe == nil && (c.finds == "" || c.finds == "axe") {
				add("axe", p.Violations(axe)...)
			}
			if f := p.Keyboard(20).String(); f != "" {
				add("focus", f)
			}
			check, what, _ := strings.Cut(c.finds, " ")
			ok := (len(found) > 0) == (check != "")
			for _, f := range found {
				ok = ok && strings.HasPrefix(f, check) && strings.Contains(f, what)
			}
			if !ok {
				t.Errorf("found %q, want %q", found, c.finds)
			}
		})
	}
}
