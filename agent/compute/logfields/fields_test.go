package logfields_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

// standard returns a line in the default HTTP format.
func standard(path, code, agent string) string {
	return `[2026-11-23T10:00:00.000Z] default "GET ` + path + ` HTTP/1.1" ` + code + ` UF,URX 3 2 15 14 "-" "` + agent +
		`" "-" "7d1e" "backend.mesh" "web" "backend" "192.0.2.1" "192.0.2.2:80"`
}

func fields(t testing.TB, names ...string) []logfields.Field {
	t.Helper()
	var out []logfields.Field
	for _, name := range names {
		f, err := logfields.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// shown formats values: * for one that is hidden or unsure, - for one that the line lacks.
func shown(values []logfields.Value) string {
	var out []string
	for _, v := range values {
		text := string(v.Text)
		switch v.State {
		case logfields.Absent:
			text = "/"
		case logfields.Hidden, logfields.Unsure:
			text = "*"
		case logfields.Known:
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestDefaultFormats reads all fields of lines in the default formats, also if clients imitate
// them.
func TestDefaultFormats(t *testing.T) {
	r := logfields.New(logfields.Options{Templates: logline.Defaults(), Placeholders: logline.Placeholders(),
		Fields: fields(t, "status", "method", "path", "agent", "duration", "service", "source", "client", "upstream",
			"REQ(X-REQUEST-ID)", "flags", "route")}).NewReader()
	for _, c := range []struct{ name, line, want string }{
		{"a request", standard("/a?b=c", "503", "curl/8"),
			"503 GET /a?b=c curl/8 15 backend web 192.0.2.1 192.0.2.2:80 7d1e UF,URX /"},
		{"spaces and quotes", standard(`/a b" c`, "404", `x" y`),
			"404 GET /a b\" c x\" y 15 backend web 192.0.2.1 192.0.2.2:80 7d1e UF,URX /"},
		{"an imitation in the path", standard(`/ HTTP/1.1" 200 - 0 2 9 14 "`, "503", "x"),
			"* * * * * backend web 192.0.2.1 192.0.2.2:80 * * /"},
		{"an imitation in the agent", standard("/", "503", `x HTTP/1.1" 200 - 0 2 9 - "`),
			"* * * * * backend web 192.0.2.1 192.0.2.2:80 * * /"},
		{"an imitation of the end", standard("/", "200", `" "-" "7d1e" "x" "web" "cart" "192.0.2.9" "192.0.2.9:80`),
			"200 GET /  15 backend web 192.0.2.1 192.0.2.2:80 7d1e UF,URX /"},
		{"a connection", "[2026-11-23T10:00:00.000Z] UF default 192.0.2.1(web)->192.0.2.2:80(backend) took 15ms, " +
			"sent 2 bytes, received: 0 bytes", "/ / / / 15 backend web 192.0.2.1 192.0.2.2:80 / UF /"},
		{"cut", standard("/", "503", "x")[:100], "/ / / / / / / / / / / /"},
		{"text before it", "x" + standard("/", "503", "x"), "/ / / / / / / / / / / /"},
		{"JSON of an unknown format",
			`{"response_code": 503,"path":"/\"a","status":"503","duration":7,"route_name":null,"x":{"service":"a"}}`,
			"503 / /\"a / 7 / / / / / / "},
		{"JSON that contradicts itself", `{"response_code":503,"status":200}`, "* / / / / / / / / / / /"},
		{"not JSON", `{"response_code":503`, "/ / / / / / / / / / / /"},
		{"not one object", `{"response_code":503}{}`, "/ / / / / / / / / / / /"},
		{"nothing", "", "/ / / / / / / / / / / /"},
	} {
		if got := shown(r.Read([]byte(c.line))); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestOwnFormats reads lines in the formats of loggers: formats that differ in words are one, JSON
// fields have the values of their operators, and formats that contradict each other hide a value.
func TestOwnFormats(t *testing.T) {
	f := logfields.New(logfields.Options{Templates: logline.Defaults(), Placeholders: logline.Placeholders(),
		Formats: []logline.Format{
			{Text: "%REQ(:PATH)% %START_TIME%|%RESPONSE_CODE%|backend\n"},
			{Text: "%REQ(:PATH)% %START_TIME%|%RESPONSE_CODE%|cart\n"},
			{JSON: map[string]any{"answer": "%RESPONSE_CODE%", "began": "at %START_TIME%", "status": "%REQ(STATUS)%", "v": "1"}},
			{Text: "%RESPONSE_CODE% %DURATION%"}, {Text: "%DURATION% %RESPONSE_CODE%"}, {Text: "%BROKEN%"},
			{Text: "x%REQ(A)%%ROUTE_NAME% %DURATION%"},
			{Text: "%QUERY_PARAM(a)%"},
			{Text: strings.NewReplacer("%KUMA_MESH%", "default", "%KUMA_SOURCE_SERVICE%", "web", "%KUMA_DESTINATION_SERVICE%",
				"backend", "%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%", "192.0.2.1").Replace(logline.DefaultHTTP) + "\n"},
		}, Fields: fields(t, "status", "service", "time", "route", ".status", "REQ(status)")})
	r := f.NewReader()
	for line, want := range map[string]string{
		"/a 200 2026|503|backend":                             "503 backend 2026 / / /",
		"/2026|200|cart 2027|503|cart":                        "503 cart 2027 / / /",
		"/a 2026|503|other":                                   "503 other 2026 / / /",
		`{"answer":503,"began":"at 2026","status":"200"}`:     "503 / 2026 / 200 200",
		`{"answer":503,"began":"2026","v":"1"}`:               "503 / * / / ",
		`{"answer":503,"v":"2"}`:                              "/ / / / / /",
		`{"answer":503,"status":"200","z":1}`:                 "200 / / / 200 /",
		"503 200":                                             "* / / / / /",
		"xab 7":                                               "/ / / * / /",
		standard("/", "503", "x"):                             "503 backend 2026-11-23T10:00:00.000Z / / /",
		strings.Replace(standard("/", "5", "x"), "b", "é", 1): "5 backend 2026-11-23T10:00:00.000Z / / /",
	} {
		if got := shown(r.Read([]byte(line))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
		}
	}
	if got := fmt.Sprint(len(f.Reasons), f.Reasons); !strings.Contains(got, "clients can shift the value of route") ||
		!strings.Contains(got, "%QUERY_PARAM(a)%") || !strings.HasPrefix(got, "3 ") {
		t.Error(got)
	}
}

// TestConditions checks the operators with values, and the errors of conditions that cannot be
// parsed.
func TestConditions(t *testing.T) {
	for _, c := range []struct{ condition, value, want string }{
		{"path~/api/", "/v1/api/x", "yes"}, {"path~^/api/", "/v1/api/x", "no"}, {"path!~^/api/", "/v1/api/x", "yes"},
		{"path=/a", "/a", "yes"}, {"path=/a", "/a/", "no"}, {"path!=/a", "-", "yes"}, {"route=", "-", "yes"},
		{"route=-", "-", "yes"}, {"route!=", "a", "yes"}, {"a=b=c", "b=c", "yes"}, {"a>=5", "5", "yes"},
		{"duration>500ms", "501", "yes"}, {"duration>500ms", "500", "no"}, {"duration>=0.5s", "500", "yes"},
		{"duration<1m", "59999", "yes"}, {"duration<=2s", "2001", "no"}, {"duration>1", "-", "no"}, {"duration>1", "x", "?"},
		{"duration=2s", "2000", "yes"}, {"status=503", "503", "yes"}, {"status!=503", "200", "yes"},
		{"sent>=10KiB", "10240", "yes"}, {"sent>10kB", "10000", "no"}, {"x<1.5", "1.25", "yes"}, {"x>-1", "0", "yes"},
		{"time>2026-11-23T10:00:00Z", "2026-11-23T11:00:00+01:00", "no"},
		{"time>=2026-11-23T10:00:00Z", "2026-11-23T10:00:00.000Z", "yes"}, {"time<2026-11-23T10:00:00Z", "soon", "?"},
		{"REQ(X-A)~b", "abc", "yes"},
		{"path", "", "is not a condition"}, {"", "", "is not a condition"}, {"=a", "", "is not a condition"},
		{"path>abc", "", "compares numbers"}, {"path~(", "", "regular expression is invalid"},
		{" =a", "", "name of the field"},
		{"a=" + strings.Repeat("x", 1024), "", "at most 1024"}, {"a!b", "", "is not a condition"},
		{"path~(((a{100}){100}){100})", "", "regular expression is invalid"},
	} {
		p, err := logfields.ParseCondition(c.condition)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		default:
			matches, known := p.Matches([]byte(c.value))
			switch got = "no"; {
			case !known:
				got = "?"
			case matches:
				got = "yes"
			}
			if matches && !p.May([]byte("x "+c.value)) {
				t.Errorf("%s: a line with %s is rejected by its bytes", c.condition, c.value)
			}
		}
		if err == nil && got != c.want || err != nil && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s, %s: %s, want %s", c.condition, c.value, got, c.want)
		}
	}
	if c, err := logfields.ParseCondition("path~^/api/"); err != nil || c.May([]byte(standard("/x", "200", "x"))) ||
		!c.May([]byte(standard("/api/x", "200", "x"))) || !c.May([]byte(`{"path":"\/api\/"}`)) {
		t.Errorf("the bytes of lines are not compared: %v", err)
	}
	for _, name := range logfields.Names() {
		if f, err := logfields.Named(name); err != nil || f.Name != name {
			t.Errorf("%s: %v %v", name, f, err)
		}
	}
}

// FuzzRead reads arbitrary lines in arbitrary formats. Each value is part of its line, and in the
// same place as the value that logline reads.
func FuzzRead(f *testing.F) {
	f.Add("%REQ(A)% %RESPONSE_CODE% %REQ(B)% %START_TIME%", "x 503 y 2026", false)
	f.Add(logline.DefaultHTTP, standard("/", "503", "x"), false)
	f.Add("a %RESPONSE_CODE%", `{"k":"a 503","time":"2026"}`, true)
	f.Fuzz(func(t *testing.T, format, line string, asJSON bool) {
		x := logline.Format{Text: format}
		if asJSON {
			x = logline.Format{JSON: map[string]any{"k": format}}
		}
		r := logfields.New(logfields.Options{Templates: []logline.Format{x}, Placeholders: logline.Placeholders(),
			Fields: fields(t, "status", "time", "REQ(A)", "route")}).NewReader()
		values := r.Read([]byte(line))
		for _, v := range values {
			if !strings.Contains(line, string(v.Text)) && !strings.Contains(line, `\`) {
				t.Fatalf("%q is not in the line", v.Text)
			}
		}
		old, err := logline.NewReader(x, logline.Placeholders(), "RESPONSE_CODE")
		if err != nil || asJSON || strings.HasPrefix(strings.TrimSpace(line), "{") {
			return
		}
		if got, ok := old.Read([]byte(line)); ok && old.Has(0) && values[0].State == logfields.Known &&
			got[0] != string(values[0].Text) {
			t.Fatalf("the status is %q, logline reads %q", values[0].Text, got[0])
		}
	})
}

// FuzzCondition parses arbitrary conditions. A line that its bytes reject does not match.
func FuzzCondition(f *testing.F) {
	f.Add("path~^/api", "/api")
	f.Add("duration>1.5s", "1500")
	f.Add("a=b", "b")
	f.Fuzz(func(t *testing.T, text, value string) {
		c, err := logfields.ParseCondition(text)
		if err != nil {
			return
		}
		if matches, known := c.Matches([]byte(value)); matches && (!known || !c.May([]byte(value))) {
			t.Fatalf("%q matches %q: known %v", text, value, known)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	r := logfields.New(logfields.Options{Templates: logline.Defaults(), Placeholders: logline.Placeholders(),
		Fields: fields(b, "status", "time", "duration", "service")}).NewReader()
	for name, line := range map[string]string{"text": standard("/api/v1/orders/17", "200",
		"Mozilla/5.0 (X11; Linux x86_64)"),
		"json": `{"start_time":"2026-11-23T10:00:00.000Z","response_code":200,"duration":15,"path":"/api/v1/orders/17","service":"backend"}`} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Read([]byte(line))
			}
		})
	}
}
