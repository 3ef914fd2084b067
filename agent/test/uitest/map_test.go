package uitest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// TestMap finds the edges of the quickstart in the graph, the matrix, and the list, by keyboard.
func TestMap(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, func(dir string) error {
		if err := fromQuickstart(dir); err != nil {
			return err
		}
		return os.WriteFile(dir+"/00-mesh.yaml", []byte(meshWithTLS), 0o600)
	})
	p := b.Page(t)
	p.Resize(1280, 900)
	url := open(t, p, n)
	t.Run("graph", func(t *testing.T) {
		p := p.With(t)
		p.Open(url + "#/map?mode=graph")
		p.Until(`document.querySelectorAll(".graph .node").length === 4`)
		p.Eval(`document.querySelector('.graph .node[data-key="service:default/web"]').focus()`, nil)
		p.Press("ArrowRight")
		p.Until(`document.activeElement.dataset.key !== "service:default/web"`)
		p.Press("ArrowLeft")
		p.Until(`document.activeElement.dataset.key === "service:default/web"`)
		p.Press("Enter")
		p.Until(`document.querySelector("#details")?.textContent.includes("called by 0")`)
		has(t, p, "#details", "MeshTrafficPermission/default/web-to-backend", "Show only its neighbors")
		p.Reload() // the address holds the selection
		p.Until(`document.querySelector("#details")?.textContent.includes("called by 0")`)
		p.Until(`document.querySelector(".graph .node.selected")?.dataset.key === "service:default/web"`)
	})
	t.Run("matrix", func(t *testing.T) {
		p := p.With(t)
		p.Open(url + "#/map?mode=matrix")
		p.Until(`document.querySelector(".matrix a")`)
		p.Eval(`document.querySelector('.matrix [tabindex="0"]').focus()`, nil)
		p.Press("End", "ArrowDown", "ArrowDown", "Home")
		p.Until(`document.activeElement.getAttribute("aria-label")?.startsWith("web to backend: allowed")`)
		p.Press("Enter")
		has(t, p, "#details", "web → backend", "spec.from[0].default", "have an outbound to it")
		p.Until(`document.querySelector('#details a[href="#/why?mesh=default&from=web&to=backend"]')`)
	})
	t.Run("list", func(t *testing.T) {
		p := p.With(t)
		p.Open(url + "#/map?mode=list&show=denied")
		p.Until(`document.querySelectorAll("main tbody tr").length === 3`) // redis and greeter have no policy
		p.Open(url + "#/map?mode=list&q=absent")
		p.Until(`document.querySelector(".empty")?.textContent.includes("No edge matches")`)
		p.Click(".empty button")
		p.Until(`document.querySelectorAll("main tbody tr").length === 4`)
	})
	t.Run("live", func(t *testing.T) {
		p := p.With(t)
		p.Open(url + "#/map?mode=list&show=denied")
		p.Until(`document.querySelectorAll("main tbody tr").length === 3`)
		agenttest.Do(t, os.WriteFile(n.path("resources/00-mesh.yaml"), []byte("type: Mesh\nname: default\n"), 0o600))
		p.Until(`document.querySelector(".empty")?.textContent.includes("No edge matches")`)
	})
}

// TestMapModel checks the groups and places of the map in a browser, with more services than a node
// should have: few nodes, no lost edge, and the same places each time.
func TestMapModel(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, func(dir string) error { return mesh.Write(dir, mesh.Options{Services: 1}) })
	p := b.Page(t)
	open(t, p, n)
	var got []string
	p.Eval(`(async () => {
		const m = await import("./views/map/model.js"), {layout} = await import("./views/map/layout.js");
		const faults = [];
		for (const [services, namespaces] of [[1, 1], [2, 1], [60, 7], [61, 1], [5000, 1], [5000, 23], [5000, 3000]]) {
			const list = [], edges = [];
			for (let i = 0; i < services; i++) {
				list.push({mesh: "default", name: "svc-" + String(i).padStart(4, "0"), namespace: "n" + i % namespaces,
					zones: ["z"], tags: {version: "v" + i % 2}, dataplanes: 1});
			}
			for (let i = 0; i < services; i++) for (const k of [1, 7, 50]) {
				edges.push({mesh: "default", from: list[i].name, to: list[(i * k + 1) % services].name, permission: "allowed",
					reach: true, requests: 0, failed: 0, refused: 0});
			}
			const groups = m.groupings(list);
			for (const grouping of [...groups, groups.find(g => g.id === m.bestGrouping(list, groups)) || null]) {
				const all = m.build({services: list, edges, grouping});
				const told = services + " services, " + namespaces + " namespaces by " + grouping?.id;
				if (all.nodes.length > m.MOST_NODES || all.nodes.length < 1) faults.push(told + ": " + all.nodes.length + " nodes");
				if (all.nodes.flatMap(n => n.members).length !== services) faults.push(told + ": services are lost");
				if (all.edges !== edges.length) faults.push(told + ": " + all.edges + " of " + edges.length + " edges");
				const one = layout(all.nodes, all.links), two = layout(all.nodes, all.links);
				if (JSON.stringify([...one.places]) !== JSON.stringify([...two.places])) faults.push(told + ": places differ");
				if (one.places.size !== all.nodes.length) faults.push(told + ": nodes without a place");
				const inside = m.build({services: list, edges, grouping, inside: all.nodes[0].id});
				if (inside.nodes.length > m.MOST_NODES) faults.push(told + ", inside: " + inside.nodes.length + " nodes");
				const focus = m.build({services: list, edges, grouping, focus: "default/svc-0000"});
				const own = new Set(edges.filter(e => e.from === "svc-0000" || e.to === "svc-0000"));
				if (focus.edges !== own.size) faults.push(told + ", focus: " + focus.edges + " of " + own.size + " edges");
				const found = m.build({services: list, edges, grouping, search: "SVC-0001"});
				if (services > 1 && found.matches !== 1) faults.push(told + ", search: " + found.matches);
			}
		}
		return faults;
	})()`, &got)
	if len(got) > 0 {
		t.Error(strings.Join(got, "\n"))
	}
}

// TestLogs searches the audit log, and follows it while a file changes.
func TestLogs(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	url := open(t, p, n)
	p.Open(url + "#/logs?log=audit")
	p.Until(`document.querySelector(".log-lines")?.textContent.includes("created Mesh/default@1")`)
	p.Eval(`[...document.querySelectorAll(".log-line summary")].at(-1).click()`, nil)
	p.Until(`document.querySelector(".log-line pre")?.textContent.includes('"kind": "Event"')`)
	p.Click("[role=tab][aria-selected=true]")
	p.Press("ArrowRight")
	p.Until(`location.hash.includes("tab=live")`)
	for i := range 3 {
		text := fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: live-%d\nspec: {to: [{targetRef: {kind: Mesh}, "+
			"default: {connectionTimeout: 9s}}]}\n", i)
		agenttest.Do(t, os.WriteFile(n.path(fmt.Sprintf("resources/live-%d.yaml", i)), []byte(text), 0o600))
		p.Until(fmt.Sprintf(`document.querySelector(".log-line")?.textContent.includes("MeshTimeout/default/live-%d@")`, i))
	}
	p.Open(url + "#/logs?tab=stats")
	p.Until(`document.querySelector(".empty")?.textContent.includes("No line matches")`)
	p.Open(url + "#/logs?where=x")
	p.Until(`document.querySelector("[role=alert]")?.textContent.includes("where")`)
}

// TestMembers shows a pool of two nodes, of which one ends.
func TestMembers(t *testing.T) {
	b := chromium.Start(t)
	first := newNode(t, fromQuickstart, "gossip.bind=127.0.0.1:0", "gossip.insecure=true")
	p := b.Page(t)
	url := open(t, p, first)
	p.Open(url + "#/members")
	p.Until(`document.querySelector("main .view").textContent.includes("this node")`)
	var address string
	p.Eval(`fetch("api/v1/members", {headers: {"X-Nearside-Page": "1"}}).then(r => r.json()).then(m => m.items[0].address)`, &address)
	second := newNode(t, fromQuickstart, "gossip.bind=127.0.0.1:0", "gossip.insecure=true", "node.name=node-2",
		"gossip.join="+address)
	p.Reload()
	p.Until(`document.querySelectorAll(".chip").length === 2`)
	p.Click(`.chip[data-key="chip-node-2"]`)
	has(t, p, "#node", "node-2", "alive", "Address")
	p.Until(`location.hash.includes("node=node-2")`)
	second.stop()
	p.Eval(`window.asking = setInterval(() => document.querySelector(".head button").click(), 300)`, nil)
	p.Until(`!document.querySelector(".chip.ok[data-key=chip-node-2]")`)
	p.Eval(`clearInterval(window.asking)`, nil)
}
