package uitest_test

import (
	"os"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// secondMesh has a dataplane whose name is also in the mesh of the quickstart.
const secondMesh = `type: Mesh
name: prod
---
type: Dataplane
mesh: prod
name: web
networking:
  address: 192.0.2.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 10001, tags: {kuma.io/service: api}}]
---
type: Dataplane
mesh: prod
name: api
networking:
  address: 192.0.2.2
  inbound: [{port: 8080, tags: {kuma.io/service: api, kuma.io/protocol: http}}]
`

// TestNames opens addresses with names in all forms that nearside prints.
func TestNames(t *testing.T) {
	b := chromium.Start(t)
	n := newNode(t, func(dir string) error {
		if err := fromQuickstart(dir); err != nil {
			return err
		}
		return os.WriteFile(dir+"/zz-prod.yaml", []byte(secondMesh), 0o600)
	})
	p := b.Page(t)
	url := open(t, p, n)
	for _, from := range []string{"Dataplane/prod/web", "dp/prod/web", "prod/web", "prod.web", "web&mesh=prod"} {
		p.Open(url + "#/proxies")
		p.Open(url + "#/why?from=" + from + "&to=api")
		p.Until(`location.hash.startsWith("#/why?mesh=prod&from=web&to=api") &&
			document.querySelector(".verdict .answer")?.textContent === "Allowed"`)
	}
	p.Open(url + "#/proxies")
	p.Open(url + "#/why?from=web&to=prod/api")
	p.Until(`location.hash.startsWith("#/why?mesh=prod&from=web&to=api")`)
	for address, title := range map[string]string{"proxy?name=Dataplane/prod/api": "api", "proxy?name=prod.api": "api",
		"policy?name=Mesh/prod": "Mesh prod", "policy?name=Dataplane/prod/api": "Dataplane api",
		"history?name=dataplane/prod/api": "History of Dataplane/prod/api"} {
		p.Open(url + "#/" + address)
		p.Until(`document.querySelector("#main h1")?.textContent === "` + title + `"`)
	}
}
