package faulttest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// mistake is a step of docs/first-policies.md that is done wrong.
type mistake struct {
	what     string
	document int    // number of the document on the page, from 0; -1: the step has none
	old, new string // the change of the document
	// command is the second command; the first one applies the document. Empty: the first one names
	// the cause. Without a document, it is the first one.
	command string
	says    string
}

// The documents of docs/first-policies.md, in their order.
const (
	theMesh = iota
	thePermission
	theDataplane
	thePassthrough
	theLog
	none = -1
)

const (
	toRedis = "nearside explain connection --from web --to 127.0.0.1:20002"
	toAPI   = "nearside explain connection --from shop --to api.example.com:443 --tls --ip 203.0.113.8"
)

// beforeTLS are mistakes of the steps before the mesh has mutual TLS.
var beforeTLS = []mistake{
	{"no socket", none, "", "", "nearside get dataplanes --socket $DIR/nowhere.sock",
		"no agent answers at $DIR/nowhere.sock: connect: no such file or directory"},
	{"wrong type", none, "", "", "nearside get dataplan -o name", `there is no TYPE "dataplan"; did you mean dataplane?`},
	{"wrong dataplane", none, "", "", "nearside explain connection --from wep --to 127.0.0.1:20002", "did you mean web?"},
	{"wrong mesh", none, "", "", toRedis + " -m defalt", `mesh "defalt" does not exist`},
	{"wrong port", none, "", "", "nearside explain connection --from web --to 127.0.0.1:20009",
		"closed: no listener is bound to 127.0.0.1:20009; the outbounds of the dataplane are 127.0.0.1:20001 (backend), " +
			"127.0.0.1:20002 (redis), 127.0.0.1:20003 (greeter)"},
	{"wrong protocol", none, "", "", "nearside explain connection --from web --to 127.0.0.1:20001",
		"explain a request instead"},
	{"wrong service", none, "", "", "nearside explain connection --from web --to redsi:6379", "did you mean redis?"},
	{"wrong backend", theMesh, "enabledBackend: ca", "enabledBackend: cb", "",
		`mtls.enabledBackend: backend "cb" does not exist: give the name of one of the backends`},
	{"wrong type of the backend", theMesh, "builtin", "builtn", "",
		`"builtn" is not allowed: give one of builtin, provided`},
	{"mesh of a file over the API", theMesh, "", "", "", "00-mesh.yaml and cannot be changed by api: edit "},
	{"wait for another mesh", none, "", "", "nearside wait mesh/defalt --timeout 1s", "did you mean default?"},
	{"permission before mutual TLS", thePermission, "", "", "",
		"this permission is not enforced: mesh default has no mTLS; enable mtls of the Mesh"},
}

// withTLS are mistakes of the steps in a mesh with mutual TLS.
var withTLS = []mistake{
	{"wrong target", thePermission, "name: redis}", "name: redsi}", "",
		`targetRef: MeshService "redsi" does not exist, so the policy selects nothing; the nearest is redis`},
	{"wrong client", thePermission, "name: web}", "name: wbe}", "", `from[0].targetRef: MeshService "wbe" does not exist`},
	{"wrong kind of target", thePermission, "{kind: MeshService, name: redis}", "{kind: MeshSevice, name: redis}", "",
		`"MeshSevice" is not allowed: give one of Mesh, MeshSubset, MeshService, MeshServiceSubset, Dataplane`},
	{"wrong kind of policy", thePermission, "MeshTrafficPermission", "MeshTrafficPermision", "",
		`did you mean "MeshTrafficPermission"?`},
	{"wrong section", thePermission, "  from:", "  to:", "", "spec.to: this kind has no to"},
	{"wrong action", thePermission, "Allow", "Alow", "", `"Alow" is not allowed`},
	{"denied instead of allowed", thePermission, "Allow", "Deny", toRedis, "denied: "},
	{"misspelled tag", thePermission, "{kind: MeshService, name: redis}",
		"{kind: MeshSubset, tags: {kuma.io/servce: redis}}", "", "the nearest is kuma.io/service"},
	{"misspelled value of a tag", thePermission, "{kind: MeshService, name: redis}",
		"{kind: MeshSubset, tags: {kuma.io/service: redsi}}", "", "the nearest is redis"},
	{"permission in another mesh", thePermission, "mesh: default", "mesh: defalt", "", `mesh "defalt" does not exist`},
	{"no permission", none, "", "", toRedis, "RBAC denies it: deny: no policy fits; no policy allows web"},
	{"dataplane in another mesh", theDataplane, "mesh: default", "mesh: defalt", "", `mesh "defalt" does not exist`},
	{"dataplane without redirection", theDataplane,
		"  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4}\n", "",
		"nearside explain connection --from shop --to www.example.com:443 --tls --ip 203.0.113.7",
		"the dataplane has no transparent proxy and no outbound at 203.0.113.7:443: the connection bypasses its proxy"},
	{"dataplane without outbound port", theDataplane, "redirectPortOutbound: 15001, ",
		"", "", "redirectPortOutbound: 0 is not a port"},
	{"equal ports", theDataplane, "15001", "15006", "", "an address can have only one listener"},
	{"misspelled protocol", theDataplane, "kuma.io/protocol: http", "kuma.io/protocol: htpp", "", `"htpp" is not allowed`},
	{"no address", theDataplane, "  address: 10.0.0.20\n", "", "", "the address is missing"},
	{"misspelled service tag", theDataplane, "kuma.io/service", "kuma.io/servce", "",
		"the tag is missing: it names the service"},
	{"the dataplane itself", theDataplane, "", "", "nearside explain connection --from shop --to www.example.com --tls",
		`"www.example.com" is not HOST:PORT`},
}

// withShop are mistakes of the steps that need Dataplane shop.
var withShop = []mistake{
	{"misspelled mode", thePassthrough, "Matched", "matched", "",
		`"matched" is not allowed: give one of All, Matched, None`},
	{"mode All", thePassthrough, "Matched", "All", "", "appendMatch has no effect, because passthroughMode is All"},
	{"wrong port of the domain", thePassthrough, "port: 443", "port: 8443", toAPI,
		"closed: no filter chain fits at destination_port"},
	{"wrong protocol of the domain", thePassthrough, "protocol: tls", "protocol: http", toAPI,
		"closed: no filter chain fits at transport_protocol"},
	{"protocol without names", thePassthrough, "protocol: tls", "protocol: tcp", "",
		"tcp cannot be combined with a domain"},
	{"wrong domain", thePassthrough, "api.example.com", "api.exampel.com", toAPI,
		"closed: no filter chain fits at server_names"},
	{"domain as an address", thePassthrough, "type: Domain", "type: IP", "", `"api.example.com" is not an IP address`},
	{"misspelled field", thePassthrough, "appendMatch", "apendMatch", "", `did you mean "appendMatch"?`},
	{"passthrough of another proxy", thePassthrough, "kuma.io/service: shop", "kuma.io/service: web", "",
		"Dataplane/default/web does not intercept outbound connections, so the policy has no effect there"},
	{"misspelled pseudo-header", theLog, `":status"`, `":sttus"`, "", `":sttus" is not a request header`},
	{"misspelled operator", theLog, "op: ge", "op: gt", "", `"gt" is not allowed: give one of eq, ne, ge, le, present`},
	{"value that is no number", theLog, `"500"`, `"5xx"`, "", `"5xx"`},
	{"misspelled operand", theLog, "START_TIME", "STRAT_TIME", "", "STRAT_TIME"},
	{"misspelled backend", theLog, "type: File", "type: Flie", "", `"Flie" is not allowed`},
	{"relative path", theLog, "/var/log/nearside/access/shop.log", "shop.log", "", `"shop.log" is not an absolute path`},
	{"log of an unknown service", theLog, "{kind: Mesh}", "{kind: MeshService, name: bckend}",
		"", "the nearest is backend"},
	{"log of another proxy", theLog, "kuma.io/service: shop", "kuma.io/service: shp", "", "the nearest is shop"},
	{"logs of another dataplane", none, "", "", "nearside logs -f --dataplane shp", "did you mean shop?"},
	{"history of another policy", none, "", "", "nearside history meshpassthrough shp", "shp"},
	{"delete another type", none, "", "", "nearside delete meshpasthrough shop", "did you mean meshpassthrough?"},
	{"delete a resource of a file", none, "", "", "nearside delete mesh default", "00-mesh.yaml"},
	{"delete another dataplane", none, "", "", "nearside delete dataplane shp", "did you mean shop?"},
}

// TestSteps does each step of docs/first-policies.md wrong on purpose. The first or the second
// command must name the cause.
func TestSteps(t *testing.T) {
	t.Parallel()
	const top = "../../.."
	page, err := os.ReadFile(filepath.Join(top, "docs/first-policies.md"))
	agenttest.Do(t, err)
	var documents []string
	for _, m := range regexp.MustCompile(`(?s)<<'END'\n(.*?)END\n`).FindAllStringSubmatch(string(page), -1) {
		documents = append(documents, m[1])
	}
	if len(documents) != theLog+1 {
		t.Fatalf("the page has %d documents, want %d", len(documents), theLog+1)
	}
	n := newNode(t)
	agenttest.Do(t, os.RemoveAll(n.path("resources")),
		os.CopyFS(n.path("resources"), os.DirFS(filepath.Join(top, "examples/quickstart/resources"))))
	n.start()
	try := func(list []mistake) {
		for _, m := range list {
			t.Run(m.what, func(t *testing.T) { m.test(t, n, documents) })
		}
	}
	try(beforeTLS)
	n.file("00-mesh.yaml", documents[theMesh])
	n.until("the mesh has mutual TLS", func() bool { return n.command(toRedis).code == 2 })
	try(withTLS)
	n.apply(documents[theDataplane])
	try(withShop)
}

func (m *mistake) test(t *testing.T, n *node, documents []string) {
	n.t = t
	var screens string
	if m.document != none {
		text := documents[m.document]
		if !strings.Contains(text, m.old) {
			t.Fatalf("%q is not in\n%s", m.old, text)
		}
		agenttest.Write(t, n.path("step.yaml"), strings.Replace(text, m.old, m.new, 1))
		screens = n.command("nearside apply -f $DIR/step.yaml").String()
		if m.document != theDataplane || m.old != "" {
			defer n.run("", "delete", "-f", n.path("step.yaml"))
		}
	}
	applied := screens
	named := func() bool {
		if m.command != "" {
			screens = applied + n.command(m.command).String()
		}
		return strings.Contains(screens, n.local(m.says))
	}
	// The agent may not have computed the config yet.
	if !named() && (m.command == "" || !poll(named)) {
		t.Errorf("%s: missing %q in\n%s", m.what, n.local(m.says), screens)
	}
	if os.Getenv(recordEnv) != "" {
		t.Logf("%s\n%s", m.what, screens)
	}
}
