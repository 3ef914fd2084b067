package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// exchange is one request of kumactl to a Kuma control plane with the response.
type exchange struct {
	Kind, Method, Path string
	Request, Response  string
	Status             int
}

// recorded reads the recorded requests of kumactl in their order.
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

// otherwise lists requests to which nearside intentionally responds with another status than Kuma,
// by prefix of "METHOD PATH".
var otherwise = []struct {
	request string
	status  int
	reason  string
}{
	{"PUT /meshes/bad", 0, "a certificate that is a Secret is looked for when the mesh is in force"},
	{"DELETE /meshes/default", 409, "it is in use; Kuma says 400"},
	{"POST /tokens/", 400, "nearside token create makes tokens"},
}

// absent lists path elements of features that nearside does not have. Lists are empty, and other
// requests return 404.
var absent = []string{"/zones", "/secrets", "/global-secrets", "/globalsecrets", "/meshgateways", "/meshgatewayroutes",
	"/meshidentities", "/meshtrusts", "/workloads", "-insights", "insights", "/hostnamegenerators/local-",
	"/meshservices/other"}

// later lists collections that exist only in Kuma versions after the recorded one. nearside serves
// them.
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
	if strings.HasPrefix(path, "/zoneingresses/ingress-1/") {
		return 400, "its Envoy is in another zone; a control plane of an earlier Kuma does not know the path"
	}
	for _, a := range absent {
		switch {
		case !strings.Contains(path, a):
		case strings.HasSuffix(path, "/mesh-insights"), strings.HasSuffix(path, "/service-insights"),
			strings.HasSuffix(path, "_overview"), path == "/hostnamegenerators",
			strings.HasSuffix(path, "/dataplanes"):
		case x.Method == "GET" && isList && !strings.Contains(path, "insights"):
			return 200, "an empty list"
		default:
			return 404, "nearside has none"
		}
	}
	return x.Status, ""
}

// ofEnvoy reports whether a request is answered by an Envoy of this node.
func ofEnvoy(x exchange) bool {
	path, _, _ := strings.Cut(x.Path, "?")
	return strings.HasPrefix(path, "/meshes/default/dataplanes/web/") &&
		slices.Contains([]string{"xds", "stats", "clusters"}, path[strings.LastIndexByte(path, '/')+1:])
}

// envoyFor makes this process the Envoy of default/web until stop is called. It receives a config
// and serves Envoy's recorded responses on the path of the admin socket.
func envoyFor(t *testing.T, r *agenttest.Running) (stop func()) {
	stream := r.Ask(&core.Node{Id: "default.web", UserAgentName: "envoy"}, nil)
	agenttest.Next(t, stream, map[string]string{})
	l, err := net.Listen("unix",
		filepath.Join(filepath.Dir(r.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "default.web.sock"))
	agenttest.Do(t, err)
	const dump = `{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "default.web"}, "dynamic_resources": {"ads_config": {
		"grpc_services": [{"initial_metadata": [{"key": "authorization", "value": "Bearer is-a-secret"}]}]}}}}]}`
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, known := map[string]string{"/config_dump": dump, "/stats": "cluster_manager.active_clusters: 1\n",
			"/clusters": "backend::default_priority::max_connections::1024\n"}[q.URL.Path]
		if !known {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	return func() { _ = srv.Close(); <-ended; agenttest.Do(t, stream.CloseSend()) }
}

// TestKumactl sends the recorded requests of kumactl to an agent.
func TestKumactl(t *testing.T) {
	list := recorded(t)
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	// Requests about a connected Envoy were recorded in another session. They run while the Envoy's
	// Dataplane exists.
	var connected []exchange
	list = slices.DeleteFunc(list, func(x exchange) bool {
		if is := ofEnvoy(x) && x.Status == 200; is {
			connected = append(connected, x)
			return true
		}
		return false
	})
	gone := slices.IndexFunc(list, func(x exchange) bool {
		return x.Method == "DELETE" && x.Path == "/meshes/default/dataplanes/web"
	})
	list = slices.Insert(list, gone, connected...)
	stop := func() {}
	same := 0
	for i, x := range list {
		want, why := wanted(x)
		switch i {
		case gone:
			stop = envoyFor(t, r)
		case gone + len(connected):
			stop()
		}
		status, answer := r.Request(x.Method, "http://nearside"+x.Path, x.Request)
		if strings.Contains(answer, "is-a-secret") {
			t.Errorf("%s: a secret: %s", x.Path, answer)
		}
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
			sameObject(t, x, answer)
		}
	}
	t.Logf("%d of %d requests are answered as kumactl needs it", same, len(list))
}

// TestKumactlProgram runs kumactl if it is on the PATH.
func TestKumactlProgram(t *testing.T) {
	bin, err := exec.LookPath("kumactl")
	if err != nil {
		t.Skipf("there is no kumactl on the PATH: %v", err)
	}
	dir, token := agenttest.ShortDir(t), "0123456789abcdef0123456789abcdef"
	agenttest.Do(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	r := agenttest.Up(t, dir, agent.Deps{}, "api.tcp=127.0.0.1:0", "api.tokenFile="+filepath.Join(dir, "token"))
	file := filepath.Join(dir, "web.yaml")
	agenttest.Do(t,
		os.WriteFile(file, []byte("type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1")+
			"---\ntype: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n  to:\n"+
			"  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 5s}\n"), 0o600))
	for _, c := range []struct{ args, says string }{
		{"config control-planes add --name here --address http://" + r.Addrs().APITCP.String() +
			" --auth-type tokens --auth-conf token=" + token, "here"},
		{"apply -f " + file, ""},
		{"get meshes", "default"},
		{"get dataplanes", "web"},
		{"get meshtimeout slow -o yaml", "connectionTimeout: 5s"},
		{"inspect dataplanes", "web"},
		{"inspect dataplane web", "MeshTimeout"},
		{"inspect dataplane web --type=config", "type.googleapis.com"},
		{"inspect meshes", "default"},
		{"inspect meshtimeout slow", "web"},
		{"export --profile all --format universal", "MeshTimeout"},
		{"export --profile all --format kubernetes", "kind: MeshTimeout"},
		{"delete meshtimeout slow", ""},
	} {
		out, err := exec.CommandContext(t.Context(), bin,
			append([]string{"--config-file", filepath.Join(dir, "kumactl")}, strings.Fields(c.args)...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.says) {
			t.Errorf("kumactl %s: %v: %s", c.args, err, out)
		}
	}
}

// reads lists the fields that kumactl's printers read, by suffix of the path. At least one item
// must have each field with the correct type.
var reads = map[string]map[string]string{
	"/": {"product": "string", "version": "string", "hostname": "string", "clusterId": "string",
		"instanceId": "string"},
	"/meshes":     {"items[].name": "string", "items[].modificationTime": "string", "total": "float64"},
	"/dataplanes": {"items": "[]interface {}", "total": "float64"},
	"/mesh-insights": {"items[].name": "string", "items[].dataplanes": "map[string]interface {}",
		"items[].dataplanes.total": "float64", "items[].policies": "map[string]interface {}"},
	"/service-insights": {"items": "[]interface {}", "total": "float64"},
	"/_resources":       {"resources[].name": "string", "resources[].includeInFederation": "bool"},
	"web/policies": {"kind": "string", "items[].type": "string",
		"items[].matchedPolicies": "map[string]interface {}"},
	"mt-1/dataplanes": {"total": "float64", "items[].kind": "string", "items[].dataplane.name": "string",
		"items[].attachments[].type": "string"},
	"default/dataplanes/_overview": {"items[].type": "string", "items[].name": "string", "items[].mesh": "string",
		"items[].modificationTime":             "string",
		"items[].dataplane.networking.address": "string"},
	"web/xds":                  {"configs[].bootstrap.node.id": "string", "configs[].@type": "string"},
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

// sameObject compares the fields around the spec of a resource in Kubernetes format with Kuma's.
// "kumactl export --format kubernetes" prints them.
func sameObject(t *testing.T, x exchange, answer string) {
	t.Helper()
	if x.Status != 200 || !strings.HasSuffix(x.Path, "?format=k8s") {
		return
	}
	type object struct {
		APIVersion, Kind, Mesh, Type string
		Metadata                     struct {
			Name, Namespace string
			Labels          map[string]string
		}
	}
	var want, got object
	for text, v := range map[string]*object{x.Response: &want, answer: &got} {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			t.Errorf("GET %s: %v: %s", x.Path, err, text)
		}
		v.Metadata.Labels = map[string]string{"kuma.io/mesh": v.Metadata.Labels["kuma.io/mesh"]}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("GET %s: %+v, want %+v", x.Path, got, want)
	}
	if !strings.Contains(answer, `"creationTimestamp":"`) || !strings.Contains(answer, `"spec":{`) {
		t.Errorf("GET %s: %s", x.Path, answer)
	}
}

// TestOverviewOfConnectedProxy checks that a connected proxy is online, with the version of its
// Envoy.
func TestOverviewOfConnectedProxy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.Apply(t, r.Agent, "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1")+
		"---\n"+agenttest.DataplaneText("default", "away", "127.0.0.2"))
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
	if away, web := list.Items[0], list.Items[1]; away.DataplaneInsight != nil || web.DataplaneInsight == nil ||
		len(web.DataplaneInsight.Subscriptions) != 1 || web.DataplaneInsight.Subscriptions[0].DisconnectTime != nil ||
		web.DataplaneInsight.Subscriptions[0].Status.Total["responsesSent"] == "0" {
		t.Errorf("%s", answer)
	}
	// The counts of responses may differ from those of the list, which is older.
	if _, one := r.Request("GET", "http://nearside/meshes/default/dataplanes/web/_overview",
		""); !strings.HasPrefix(one, `{"type":"DataplaneOverview","mesh":"default","name":"web",`) ||
		!strings.Contains(one, `"connectTime":"`+list.Items[1].DataplaneInsight.Subscriptions[0].ConnectTime+`"`) {
		t.Errorf("%s\n%s", one, answer)
	}
	if _, insights := r.Request("GET", "http://nearside/mesh-insights",
		""); !strings.Contains(insights, `"dataplanes":{"total":2,"online":1,"offline":1}`) {
		t.Errorf("%s", insights)
	}
}
