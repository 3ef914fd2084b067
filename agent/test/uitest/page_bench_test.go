package uitest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// BenchmarkPage measures the page of an agent with 1,000 services and 300 connected proxies: the
// time until it shows the state of the node, the longest task of a selection in the map, the time
// until it shows a change of a file, and the processor time of the agent with a page that is open.
func BenchmarkPage(b *testing.B) {
	browser := chromium.Start(b)
	o := mesh.Options{Services: 1000, Proxies: 300, MTLS: true}
	n := newNode(b, func(dir string) error { return mesh.Write(dir, o) })
	n.connect(o)
	p := browser.Page(b)
	url := open(b, p, n)
	for _, v := range []struct{ name, hash, shown string }{
		{"health", "#/health", `document.querySelector(".verdict .answer")`},
		{"proxies", "#/proxies", `document.querySelectorAll("tbody tr").length > 50`},
		{"map", "#/map", `document.querySelector("main svg a, main svg circle, main svg rect")`},
	} {
		b.Run(v.name, func(b *testing.B) {
			p := p.With(b)
			var paint, shown float64
			for b.Loop() {
				p.Open("about:blank")
				p.Open(url + v.hash)
				p.Until(v.shown)
				var at struct{ Paint, Shown float64 }
				p.Eval(`({Paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
					Shown: performance.now()})`, &at)
				paint, shown = at.Paint, at.Shown
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(paint, "first-paint-ms")
			b.ReportMetric(shown, "shown-ms")
		})
	}
	b.Run("select", func(b *testing.B) {
		p := p.With(b)
		p.Open(url + "#/map")
		p.Until(`document.querySelector(".graph .node")`)
		p.Quiet()
		p.Eval(`window.longest = 0; new PerformanceObserver(l => l.getEntries().forEach(e => {
			longest = Math.max(longest, e.duration);
		})).observe({type: "longtask"})`, nil)
		for i := 0; b.Loop(); i++ {
			p.Eval(fmt.Sprintf(`(list => list[%d %% list.length].dispatchEvent(new MouseEvent("click",
				{bubbles: true, cancelable: true})))(document.querySelectorAll(".graph .node"))`, i), nil)
			p.Until(`document.querySelector("#details")`)
		}
		p.Quiet()
		var longest float64
		p.Eval(`longest`, &longest)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(longest, "longest-task-ms")
	})
	b.Run("change", func(b *testing.B) {
		p := p.With(b)
		p.Open(url + "#/proxies?q=newcomer")
		p.Until(`document.querySelector("main .view h1")`)
		p.Quiet()
		var total time.Duration
		rounds := 0
		for b.Loop() {
			rounds++
			name := fmt.Sprintf("newcomer-%d", rounds)
			began := time.Now()
			agenttest.Do(b, os.WriteFile(filepath.Join(n.dir, "resources", name+".yaml"),
				[]byte(agenttest.PortedText("default", name, "127.0.0.1")), 0o600))
			p.Until(fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, name))
			total += time.Since(began)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(total.Milliseconds())/float64(rounds), "change-to-page-ms")
	})
	b.Run("open", func(b *testing.B) {
		p := p.With(b)
		p.Open(url + "#/health")
		p.Quiet()
		const while = 60 * time.Second
		for b.Loop() {
			before := n.cpu()
			<-time.After(while)
			b.ReportMetric((n.cpu()-before).Seconds()/while.Seconds()*100, "agent-core-%")
		}
		b.ReportMetric(0, "ns/op")
	})
}
