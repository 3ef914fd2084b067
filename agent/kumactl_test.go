package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
)

// exchange is one request of kumactl to a control plane of Kuma, and the answer.
type exchange struct {
	Kind, Method, Path string
	Request            string
	Status             int
}

// recorded reads what kumactl has asked, in its order.
func recorded(t *testing.T) (out []exchange) {
	t.Helper()
	dir := os.Getenv("NEARSIDE_KUMACTL")
	if dir == "" {
		dir = "../../shared/kumactl"
	}
	f, err := os.Open(dir + "/recorded.jsonl")
	if err != nil {
		t.Skipf("NEARSIDE_KUMACTL names the folder of recorded.jsonl: %v", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if x.Kind == "exchange" {
			out = append(out, x)
		}
	}
	if err := lines.Err(); err != nil || len(out) == 0 {
		t.Fatalf("%d exchanges, %v", len(out), err)
	}
	return out
}

// otherwise are the requests that nearside answers with another status than Kuma, on purpose, by the beginning of "METHOD PATH".
var otherwise = []struct {
	request string
	status  int
	reason  string
}{
	{"PUT /meshes/bad", 0, "a certificate that is a Secret is looked for when the mesh is in force"},
	{"DELETE /meshes/default", 409, "it is in use; Kuma says 400"},
	{"POST /tokens/", 400, "nearside token create makes tokens"},
	{"GET /meshes/default/dataplanes/web/xds", 404, "Envoys are asked on their node"},
	{"GET /meshes/default/dataplanes/web/stats", 404, "the same"},
	{"GET /meshes/default/dataplanes/web/clusters", 404, "the same"},
	{"GET /zoneegresses/egress-1/", 404, "the same"},
	{"GET /zoneingresses/ingress-1/", 404, "the same"},
}

// absent are words of paths that are about what nearside has not: lists are empty, and all else is not found.
var absent = []string{"/zones", "/secrets", "/global-secrets", "/globalsecrets", "/virtual-outbounds", "/meshgateways", "/meshgatewayroutes",
	"/meshidentities", "/meshtrusts", "/workloads", "-insights", "insights", "/hostnamegenerators/local-", "/meshservices/other"}

// later are lists that only a later Kuma than the recorded one has; nearside answers both.
var later = []string{"/zoneingresses", "/globalsecrets", "/meshidentities", "/meshtrusts", "/workloads"}

func wanted(x exchange) (status int, why string) {
	line := x.Method + " " + x.Path
	for _, o := range otherwise {
		if strings.HasPrefix(line, o.request) && !(strings.HasPrefix(o.request, "DELETE") && line != o.request) {
			return o.status, o.reason
		}
	}
	path, _, _ := strings.Cut(x.Path, "?")
	isList := strings.Count(strings.TrimPrefix(strings.TrimPrefix(path, "/meshes/default"), "/meshes/second"), "/") == 1
	for _, l := range later {
		if strings.HasSuffix(path, l) && x.Method == "GET" || strings.HasSuffix(path, l+"/_overview") {
			return 200, "a path of a later Kuma"
		}
	}
	if path == "/zoneingresses/ingress-1" {
		return 0, "a path of a later Kuma"
	}
	for _, a := range absent {
		switch {
		case !strings.Contains(path, a):
		case strings.HasSuffix(path, "/mesh-insights"), strings.HasSuffix(path, "/service-insights"), strings.HasSuffix(path, "_overview"), path == "/hostnamegenerators",
			strings.HasSuffix(path, "/dataplanes"):
		case x.Method == "GET" && isList && !strings.Contains(path, "insights"):
			return 200, "an empty list"
		default:
			return 404, "nearside has none"
		}
	}
	return x.Status, ""
}

// TestKumactl asks an agent what kumactl has asked Kuma.
func TestKumactl(t *testing.T) {
	list := recorded(t)
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	same := 0
	for _, x := range list {
		want, why := wanted(x)
		body := x.Request
		status, answer := r.Request(x.Method, "http://nearside"+x.Path, body)
		if want == 201 || want == 200 && x.Method == "PUT" {
			want, status = 200, min(status, 200)
		}
		switch {
		case want == 0 || status == want:
			same++
		default:
			t.Errorf("%s %s: status %d, want %d (%s): %.300s", x.Method, x.Path, status, want, why, answer)
		}
		if status < 400 {
			printed(t, x, answer)
		}
	}
	t.Logf("%d of %d requests are answered as kumactl needs it", same, len(list))
}

// reads are the fields that kumactl's printers read, by the end of the path: each is there with its type, in one item at least.
var reads = map[string]map[string]string{
	"/":                 {"product": "string", "version": "string", "hostname": "string", "clusterId": "string", "instanceId": "string"},
	"/meshes":           {"items[].name": "string", "items[].modificationTime": "string", "total": "float64"},
	"/dataplanes":       {"items": "[]interface {}", "total": "float64"},
	"/mesh-insights":    {"items[].name": "string", "items[].dataplanes": "map[string]interface {}", "items[].dataplanes.total": "float64", "items[].policies": "map[string]interface {}"},
	"/service-insights": {"items": "[]interface {}", "total": "float64"},
	"/_resources":       {"resources[].name": "string", "resources[].includeInFederation": "bool"},
	"web/policies":      {"kind": "string", "items[].type": "string", "items[].matchedPolicies": "map[string]interface {}"},
	"mt-1/dataplanes":   {"total": "float64", "items[].kind": "string", "items[].dataplane.name": "string", "items[].attachments[].type": "string"},
	"default/dataplanes/_overview": {"items[].type": "string", "items[].name": "string", "items[].mesh": "string", "items[].modificationTime": "string",
		"items[].dataplane.networking.address": "string"},
	"zoneegresses/_overview":   {"items[].zoneEgress.networking.address": "string"},
	"zone-ingresses/_overview": {"items[].zoneIngress.networking.address": "string"},
}

func printed(t *testing.T, x exchange, answer string) {
	t.Helper()
	path, _, _ := strings.Cut(x.Path, "?")
	for end, fields := range reads {
		if x.Method != "GET" || !strings.HasSuffix(path, end) || end == "/" && path != "/" {
			continue
		}
		var doc any
		if err := json.Unmarshal([]byte(answer), &doc); err != nil {
			t.Errorf("GET %s: %v", x.Path, err)
			continue
		}
		types := map[string]string{}
		var walk func(at string, v any)
		walk = func(at string, v any) {
			types[strings.TrimPrefix(at, ".")] = fmt.Sprintf("%T", v)
			switch v := v.(type) {
			case map[string]any:
				for k, y := range v {
					walk(at+"."+k, y)
				}
			case []any:
				for _, y := range v {
					walk(at+"[]", y)
				}
			}
		}
		walk("", doc)
		for field, want := range fields {
			if types[field] != want {
				t.Errorf("GET %s: %s is %q, want %q: %.300s", x.Path, field, types[field], want, answer)
			}
		}
	}
}

// TestOverviewOfConnectedProxy: who is connected is online, with the version of its Envoy.
func TestOverviewOfConnectedProxy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.Apply(t, r.Agent, "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1")+"---\n"+agenttest.DataplaneText("default", "away", "127.0.0.2"))
	stream := r.Ask(&core.Node{Id: "default.web", UserAgentName: "envoy"}, nil)
	agenttest.Next(t, stream, map[string]string{})
	_, answer := r.Request("GET", "http://nearside/meshes/default/dataplanes/_overview", "")
	var list struct {
		Items []struct {
			Name             string
			DataplaneInsight *struct {
				Subscriptions []struct {
					ConnectTime    string
					DisconnectTime *string
					Status         struct{ Total map[string]string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v %s", err, answer)
	}
	if away, web := list.Items[0], list.Items[1]; away.DataplaneInsight != nil || web.DataplaneInsight == nil || len(web.DataplaneInsight.Subscriptions) != 1 ||
		web.DataplaneInsight.Subscriptions[0].DisconnectTime != nil || web.DataplaneInsight.Subscriptions[0].Status.Total["responsesSent"] == "0" {
		t.Errorf("%s", answer)
	}
	if _, insights := r.Request("GET", "http://nearside/mesh-insights", ""); !strings.Contains(insights, `"dataplanes":{"total":2,"online":1,"offline":1}`) {
		t.Errorf("%s", insights)
	}
}
