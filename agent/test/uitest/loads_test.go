package uitest_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// TestLoads opens the page more often than a browser has connections to a server. The browser keeps
// left pages for a while, which must not keep their streams of events.
func TestLoads(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	url := open(t, p, n)
	for range 12 {
		p.Open("about:blank")
		p.Open(url + "#/proxies")
		p.Until(`document.body.dataset.events === "connected" && document.querySelector("tbody tr")`)
	}
}
