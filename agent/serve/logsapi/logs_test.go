package logsapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/logsapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world has the log files of one node: of web, of pay, of both, of a receiver, and the audit log.
type world struct {
	dir  string
	logs *logsapi.Logs
}

var now = time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)

func newWorld(t *testing.T, change func(*logsapi.Options)) world {
	t.Helper()
	w := world{dir: t.TempDir()}
	for name, content := range map[string]string{
		"web": `{"start_time":"2026-11-23T10:00:00Z","response_code":200,"path":"/a","service":"cart","duration":5}` + "\n" +
			`{"start_time":"2026-11-23T10:00:01Z","response_code":503,"path":"/b","service":"shop","duration":50}` + "\n" +
			`{"start_time":"2026-11-22T10:00:00Z","response_code":503,"path":"/old"}` + "\n",
		"pay":  `{"start_time":"2026-11-23T10:00:00Z","response_code":200,"path":"/secret"}` + "\n",
		"both": `{"start_time":"2026-11-23T10:00:00Z","response_code":200,"path":"/both"}` + "\n",
		"tcp":  "2026-11-23T10:10:00Z|/received\n",
		"audit": `{"kind":"Event","verb":"delete","stageTimestamp":"2026-11-23T10:00:00.000000Z","user":{"username":"eve"}}` +
			"\n",
		"dns": `{"time":"2026-11-23T10:00:00Z","name":"a.mesh"}` + "\n",
	} {
		if err := os.WriteFile(w.dir+"/"+name+".log", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stream := func(kind, name, dataplane, file string) api.LogStream {
		s := api.LogStream{Kind: kind, Name: name, Dataplane: dataplane, Destination: "file " + w.dir + "/" + file + ".log"}
		if dataplane != "" {
			s.Mesh = "default"
		}
		return s
	}
	o := logsapi.Options{Node: "n1", AuditFile: w.dir + "/audit.log", Now: func() time.Time { return now },
		DNSFile: func() string { return w.dir + "/dns.log" },
		Policies: func() []json.RawMessage {
			return []json.RawMessage{[]byte(`{"format":"%START_TIME%|%REQ(:PATH)%"}`)}
		},
		Streams: func() []api.LogStream {
			return []api.LogStream{stream(api.LogFIFO, "a", "web", "web"), stream(api.LogFIFO, "b", "pay", "pay"),
				stream(api.LogFIFO, "c", "pay", "both"), stream(api.LogFIFO, "d", "web", "both"),
				stream(api.LogReceiver, "e", "", "tcp"), stream(api.LogFile, "f", "", "web"),
				{Kind: api.LogFIFO, Name: "g", Mesh: "default", Dataplane: "web", Destination: "tcp one:1"}}
		}}
	if change != nil {
		change(&o)
	}
	w.logs = logsapi.New(o)
	return w
}

// senders have the permissions of some roles.
var senders = map[string]func(verb string, k resource.Key) bool{
	"all":  func(string, resource.Key) bool { return true },
	"none": func(string, resource.Key) bool { return false },
	"web": func(v string, k resource.Key) bool {
		return v == access.VerbReadLogs && k.Kind == "Dataplane" && k.Name == "web"
	},
	"proxy": func(v string, k resource.Key) bool { return v == access.VerbReadLogs && k.Kind == "Dataplane" },
}

// ask returns the answer to a query: the status, the paths or values in it, and the end.
func (w world) ask(t *testing.T, who, query string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/logs?"+query, nil)
	rec := httptest.NewRecorder()
	if e := w.logs.Serve(rec, r, senders[who]); e != nil {
		return e.Status, e.Detail
	}
	return rec.Code, strings.ReplaceAll(rec.Body.String(), w.dir, "DIR")
}

// TestServe checks which lines which senders get, and the end of the answer.
func TestServe(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		who, query string
		status     int
		want       string // parts; ! for one that must be absent
	}{
		{"all", "", 200, `"/a" "/b" "/secret" "/both" |/received "end":{"lines":5} !/old !eve`},
		{"all", "mesh=default", 200, `"/a" "/secret" !received`},
		{"web", "", 200, `"/a" "/b" !/secret !/both !received "notes":["files left out, because`},
		{"proxy", "", 200, `"/a" "/secret" "/both" !received`},
		{"none", "", 200, `"end":{"lines":0`},
		{"web", "mesh=default&dataplane=web&status=5xx", 200, `"/b" !"/a" !/both "lines":1`},
		{"web", "mesh=default&dataplane=pay", 403, `read-logs for Dataplane default/pay`},
		{"all", "where=path~^/b&since=7d", 200, `"/b" "/both" !/old "lines":2`},
		{"all", "where=path%3D/received", 200, `|/received "lines":1`},
		{"all", "limit=2", 200, `"lines":2,"more":"limit"`},
		{"all", "since=2026-11-22T00:00:00Z", 200, `/old`},
		{"all", "log=audit", 200, `"username":"eve" "lines":1`},
		{"proxy", "log=audit", 403, "the audit log requires the verb read-logs for the kind Agent"},
		{"all", "log=dns&where=name~mesh", 200, `"a.mesh"`},
		{"web", "log=dns", 403, "the dns log requires"},
		{"all", "by=status", 200, `"value":"200","lines":3, "value":"503","lines":1, "p50":50 "end":{"lines":0}`},
		{"web", "by=service&mesh=default&dataplane=web", 200, `"value":"cart" "value":"shop"`},
		{"all", "allNodes=true", 400, "not in a pool"},
		{"all", "log=x", 400, "use access, audit, or dns"}, {"all", "limit=0", 400, "1 to 100000"},
		{"all", "where=path", 400, "is not a condition"}, {"all", "log=audit&where=a%3Db", 400, "none for the audit log"},
		{"all", "since=x", 400, "since"}, {"all", "status=x", 400, "status"}, {"all", "by=%20", 400, "by"},
		{"all", "dataplane=web", 400, "give the mesh"}, {"all", "log=audit&dataplane=web&mesh=a", 400, "omit mesh"},
		{"all", "allNodes=x", 400, "true or false"}, {"all", "follow=x", 400, "true or false"},
		{"all", "x=1", 400, "use log, mesh"}, {"all", "tail=true&limit=4", 200, `"/b" "/secret" "/both" |/received !"/a" "more":"limit"`},
		{"all", "tail=true&limit=5", 200, `"/a" "/b" "/secret" "/both" |/received "lines":5} !more`},
		{"web", "tail=true&limit=1", 200, `"/b" !"/a" "more":"limit"`},
		{"web", "by=time&step=60", 200, `"value":"2026-11-23T10:00:00Z","lines":2 "perSecond":0.0333`},
		{"web", "by=time&step=1&since=7d", 200, `"value":"2026-11-22T10:00:00Z" "value":"2026-11-23T10:00:01Z"`},
		{"all", "step=60", 400, "use it with by=time"}, {"all", "by=time&step=0", 400, "from 1 to 86400"},
		{"all", "tail=true&by=status", 400, "omit it with by"}, {"all", "follow=true&tail=true", 400, "omit it with"},
	} {
		status, body := w.ask(t, c.who, c.query)
		if status != c.status {
			t.Errorf("%s, %s: %d: %s", c.who, c.query, status, body)
			continue
		}
		wants := []string{c.want}
		if status == 200 {
			wants = strings.Fields(c.want)
			if i := strings.Index(c.want, `"notes":["files`); i >= 0 {
				wants = append(strings.Fields(c.want[:i]), c.want[i:])
			}
		}
		for _, want := range wants {
			absent, not := strings.CutPrefix(want, "!")
			if not && strings.Contains(body, absent) || !not && !strings.Contains(body, want) {
				t.Errorf("%s, %s: want %s in\n%s", c.who, c.query, want, body)
			}
		}
	}
}

// TestAllNodes asks three other nodes: one shares its logs, one does not, and one does not answer.
func TestAllNodes(t *testing.T) {
	sharing := newWorld(t, func(o *logsapi.Options) { o.Share = true })
	closed := newWorld(t, nil)
	w := newWorld(t, func(o *logsapi.Options) {
		o.Others = func(ctx context.Context, q []byte, _ time.Duration) []api.NodeAnswer {
			return []api.NodeAnswer{{Node: "n2", Body: sharing.logs.Answer(ctx, q)},
				{Node: "n3", Body: closed.logs.Answer(ctx, q)}, {Node: "n4", Missing: "it has not responded"},
				{Node: "n5", Body: []byte("x")}}
		}
	})
	status, body := w.ask(t, "web", "mesh=default&dataplane=web&allNodes=true&status=5xx")
	for _, want := range []string{`{"node":"n1","file":"DIR/web.log","entry":{`, `{"node":"n2","file":`, `"lines":2`,
		`{"name":"n3","reason":"accessLog.share is not set there"}`, `{"name":"n4","reason":"it has not responded"}`,
		`{"name":"n5","reason":"its answer is invalid`} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%d: want %s in\n%s", status, want, body)
		}
	}
	if strings.Contains(body, "/secret") || strings.Contains(body, "/both") {
		t.Errorf("lines of other dataplanes: %s", body)
	}
	if status, body := w.ask(t, "web", "allNodes=true"); status != 403 {
		t.Errorf("all dataplanes: %d %s", status, body)
	}
	if _, body := w.ask(t, "all", "allNodes=true"); strings.Contains(body, `{"node":"n2","file":"`+sharing.dir+"/tcp") ||
		!strings.Contains(body, sharing.dir+"/pay") {
		t.Errorf("another node sends lines of receivers: %s", body)
	}
	if _, body := w.ask(t, "all", "allNodes=true&log=audit&limit=1"); !strings.Contains(body, `"more":"limit"`) {
		t.Errorf("no limit: %s", body)
	}
	_, body = w.ask(t, "all", "by=status&allNodes=true")
	var s api.LogStats
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Lines != 9 || len(s.Items) != 4 ||
		s.Items[2].Node != "n2" || len(s.End.Unanswered) != 3 {
		t.Errorf("%v: %s", err, body)
	}
}

// TestAnswer checks that answers to other nodes are bounded, and that other questions have none.
func TestAnswer(t *testing.T) {
	w := newWorld(t, func(o *logsapi.Options) { o.Share = true })
	line := fmt.Sprintf(`{"start_time":"2026-11-23T10:00:00Z","path":%q}`, strings.Repeat("x", 900)) + "\n"
	if err := os.WriteFile(w.dir+"/web.log", []byte(strings.Repeat(line, 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	question, _ := json.Marshal(api.LogQuestion{Ask: api.AskLogs, Query: url.Values{"limit": {"100000"}}.Encode()})
	got := w.logs.Answer(context.Background(), question)
	if len(got) < 800<<10 || len(got) > 1<<20 || !strings.Contains(string(got[len(got)-300:]), `"more":"limit"`) {
		t.Errorf("an answer of %d bytes ends with %s", len(got), got[max(0, len(got)-300):])
	}
	for _, q := range []string{"", "{}", `{"ask":"root"}`, strings.Repeat("x", 20<<10)} {
		if got := w.logs.Answer(context.Background(), []byte(q)); got != nil {
			t.Errorf("%q has the answer %s", q, got)
		}
	}
	for _, q := range []string{`{"ask":"logs","query":"%"}`, `{"ask":"logs","query":"log=x"}`} {
		if got := w.logs.Answer(context.Background(), []byte(q)); !strings.Contains(string(got), `"more":"refused"`) {
			t.Errorf("%q has the answer %s", q, got)
		}
	}
}

// FuzzQuery asks arbitrary queries as a sender and as another node.
func FuzzQuery(f *testing.F) {
	f.Add("where=path~^/a&limit=3")
	f.Add("by=service&status=5xx&since=2h")
	f.Add("by=time&step=60&tail=true&limit=1")
	f.Fuzz(func(t *testing.T, query string) {
		w := newWorld(t, func(o *logsapi.Options) { o.Share = true })
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/v1/logs", RawQuery: query}}
		rec := httptest.NewRecorder()
		_ = w.logs.Serve(rec, r, senders["web"])
		if strings.Contains(rec.Body.String(), "/secret") {
			t.Errorf("%q shows lines of another dataplane", query)
		}
		question, _ := json.Marshal(api.LogQuestion{Ask: api.AskLogs, Query: query})
		if len(question) < 16<<10 && w.logs.Answer(context.Background(), question) == nil {
			t.Errorf("%q has no answer", query)
		}
	})
}
