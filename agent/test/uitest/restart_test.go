package uitest_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// restart stops the agent under an open page: the page says so, keeps what it shows, and recovers.
func restart(t *testing.T, b *chromium.Browser) {
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	p.Open(open(t, p, n) + "#/proxies")
	p.Until(`document.querySelector("main").innerText.includes("backend-1")`)
	p.Until(live)
	n.stop()
	p.Until(`document.querySelector("#banner").innerText.includes("The agent does not answer")`)
	var kept bool
	p.Eval(`document.querySelector("main").innerText.includes("backend-1")`, &kept)
	if !kept {
		t.Errorf("the page has lost what it showed: %s", p.Text("main"))
	}
	agenttest.Write(t, n.path("resources/new.yaml"), agenttest.PortedText("default", "newcomer", "127.0.0.1"))
	n.start()
	p.Until(`!document.querySelector("#banner").innerText.includes("does not answer")`)
	p.Until(`document.querySelector("main").innerText.includes("newcomer")`)
}

// live is true when the page has its stream of events.
const live = `document.body.dataset.events === "connected"`
