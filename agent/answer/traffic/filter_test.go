package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/rotation"
)

// standard returns a line in the default HTTP format.
func standard(path, code, agent string) string {
	return `[2026-11-23T10:00:00.000Z] default "GET ` + path + ` HTTP/1.1" ` + code + ` - 0 2 15 14 "-" "` + agent +
		`" "-" "7d1e" "backend" "web" "backend" "192.0.2.1" "192.0.2.2:80"`
}

// TestStatus checks the status code of a line, "?" if unknown.
func TestStatus(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"default format", standard("/", "503", "curl/8"), "503"},
		{"nothing answered", standard("/", "0", "curl/8"), "0"},
		{"quotes in the agent", standard("/", "200", `a" "b`), "200"},
		{"a path with spaces", standard(`/a b" c`, "404", "x"), "404"},
		{"a forged path", standard(`/ HTTP/1.1" 200 - 0 2 15 14 "`, "503", "x"), "?"},
		{"a forged agent", standard("/", "503", `x HTTP/1.1" 200 - 0 2 15 - "`), "?"},
		{"an overlapping one", standard("/", "503", `-" 200 - 0 2 15 14 "-" 201 - 0 2 15 14 "`), "503"},
		{"a connection", `[2026-11-23T10:00:00.000Z] - default 192.0.2.1(web)->192.0.2.2:80(backend) took 15ms, sent 2 bytes, received: 0 bytes`, "?"},
		{"cut off", standard("/", "503", "x")[:120], "?"},
		{"something before it", "x" + standard("/", "503", "x"), "?"},
		{"a code of four digits", standard("/", "5030", "x"), "?"},
		{"own format", "GET / 503", "?"},
		{"empty", "", "?"},
		{"number", `{"response_code":503}`, "503"},
		{"text", `{"status":"503"}`, "503"},
		{"several that agree", `{"response_code":503,"status":"503"}`, "503"},
		{"several that do not", `{"response_code":503,"status":200}`, "?"},
		{"none", `{"duration":503}`, "?"},
		{"null", `{"response_code":null}`, "?"},
		{"nothing", `{"response_code":"-"}`, "?"},
		{"a fraction", `{"response_code":503.5}`, "?"},
		{"negative", `{"response_code":-1}`, "?"},
		{"an object", `{"response_code":{}}`, "?"},
		{"nested", `{"a":{"response_code":503}}`, "?"},
		{"broken", `{"response_code":503`, "?"},
		{"a list", `[{"response_code":503}]`, "?"},
	} {
		for code, want := range map[string]string{"503": "503", "200": "200", "404": "404", "0": "0"} {
			codes, err := ParseCodes(code)
			if err != nil {
				t.Fatal(err)
			}
			s := &selector{filter: &Filter{Codes: codes}}
			shown := s.shows(rotation.Line{Text: []byte(c.line)})
			if shown != (c.want == want) || (s.noStatus == 1) != (c.want == "?") {
				t.Errorf("%s: shown for %s: %v, unknown: %d", c.name, code, shown, s.noStatus)
			}
		}
	}
	own := &selector{filter: &Filter{Codes: []Codes{{500, 599}}, Fields: []string{"http.status"}}}
	if !own.shows(rotation.Line{Text: []byte(`{"http.status":502,"status":200}`)}) ||
		own.shows(rotation.Line{Text: []byte(`{"status":502}`)}) || own.noStatus != 1 {
		t.Errorf("the named field is not read: %+v", own)
	}
}

// TestLongLines checks long lines that are read in parts: the first part decides, and unknown lines
// are counted once.
func TestLongLines(t *testing.T) {
	s := &selector{filter: &Filter{Codes: []Codes{{0, 999}}}}
	for _, piece := range []rotation.Line{
		{Text: []byte(`{"status":200,"a":"`), More: true}, {Text: []byte(`{"status":200}`), More: true},
		{Text: []byte(`{"status":200}`)},
	} {
		if s.shows(piece) {
			t.Errorf("shown: %s", piece.Text)
		}
	}
	if s.noStatus != 1 || !s.shows(rotation.Line{Text: []byte(`{"status":200}`)}) {
		t.Errorf("unknown: %d", s.noStatus)
	}
	all := &selector{filter: &Filter{}}
	if !all.shows(rotation.Line{Text: []byte("a"), More: true}) || !all.shows(rotation.Line{Text: []byte("b")}) {
		t.Error("a part is skipped without a filter")
	}
}

// TestSince checks which lines are older than a time, by their format.
func TestSince(t *testing.T) {
	since := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct{ line, want string }{
		{standard("/", "200", "x"), "shown"},
		{strings.Replace(standard("/", "200", "x"), "10:00:00.000", "09:59:59.999", 1), "old"},
		{`{"start_time":"2026-11-23T11:00:00+01:00"}`, "shown"},
		{`{"time":"2026-11-23T09:00:00.5Z"}`, "old"},
		{`{"time":17}`, "?"},
		{`{"time":"yesterday"}`, "?"},
		{`{"x":1}`, "?"},
		{"[x] a", "?"},
		{"[", "?"},
		{"2026-11-23T10:00:00Z a", "?"},
	} {
		s := &selector{filter: &Filter{Since: since}}
		shown, got := s.shows(rotation.Line{Text: []byte(c.line)}), "old"
		if shown {
			got = "shown"
		} else if s.noTime > 0 {
			got = "?"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
		s.current = true
		if !s.shows(rotation.Line{Text: []byte(c.line)}) {
			t.Errorf("%s: skipped although it is newer than the end of the file", c.line)
		}
	}
}

// TestFlags checks the values of --since and --status.
func TestFlags(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-23T09:50:00Z", "2h": "2026-11-23T08:00:00Z", "7d": "2026-11-16T10:00:00Z",
		"1d12h": "2026-11-21T22:00:00Z", "2026-01-02T03:04:05+01:00": "2026-01-02T02:04:05Z", "": "", "0s": "", "-5m": "",
		"1d-2h": "", "d": "", "40000d": "", "99999999999999999999d": "", "yesterday": "", "5": "",
	} {
		at, err := ParseSince(text, now)
		if got := at.UTC().Format(time.RFC3339); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]int{"5xx": 100, "503": 1, "200-299": 100, "4xx,5XX": 2, "0": 1, "500-503,200": 2,
		"": 0, "6": 1, "xxx": 0, "0xx": 0, "299-200": 0, "2000": 0, "-1": 0, "+20": 0, "5xx,": 0, "a": 0, "200-": 0} {
		codes, err := ParseCodes(text)
		n := len(codes)
		if n == 1 {
			n = codes[0].Last - codes[0].First + 1
		}
		if n != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v", text, codes, err)
		}
	}
}

// FuzzDecide reads arbitrary lines: each is shown, skipped, or counted, and a code has three digits
// at most.
func FuzzDecide(f *testing.F) {
	f.Add([]byte(standard("/", "503", "x")), false)
	f.Add([]byte(`{"status":"503","time":"2026-11-23T10:00:00Z"}`), false)
	f.Add([]byte(`{"kind":"Event","stageTimestamp":"2026-11-23T10:00:00.000000Z","responseStatus":{"code":403}}`), true)
	f.Fuzz(func(t *testing.T, line []byte, audit bool) {
		s := &selector{filter: &Filter{Audit: audit, Since: time.Unix(0, 0), Codes: []Codes{{0, 999}}, Mesh: ""}}
		shown := s.shows(rotation.Line{Text: line})
		if n := s.noTime + s.noStatus + s.noEvent; n > 1 || shown && n > 0 {
			t.Errorf("shown %v, counted %d", shown, n)
		}
	})
}

// TestFilterFormats checks the code and the time of lines in known formats, "?" if unknown.
func TestFilterFormats(t *testing.T) {
	formats, _ := NewFormats([]logline.Format{
		{Text: "%REQ(:PATH)% %START_TIME%|%RESPONSE_CODE%|backend\n"},
		{Text: "%REQ(:PATH)% %START_TIME%|%RESPONSE_CODE%|cart\n"},
		{JSON: map[string]any{"answer": "%RESPONSE_CODE%", "began": "%START_TIME%", "status": "%REQ(STATUS)%"}},
		{Text: "%REQ(A)%%RESPONSE_CODE% %REQ(B)%"}, {Text: "%RESPONSE_CODE% %DURATION%"},
		{Text: "%DURATION% %RESPONSE_CODE%"}, {Text: "%REQ(A)% (%RESPONSE_CODE%) %REQ(B)%"},
	}, nil)
	reasons := formats.Reasons(&Filter{Codes: []Codes{{503, 503}}})
	if len(reasons) != 1 || !strings.Contains(reasons[0], "clients can shift the value of status") {
		t.Errorf("%q", reasons)
	}
	early, late := "2026-11-23T09:00:00Z", "2026-11-23T11:00:00Z"
	for _, c := range []struct{ line, code, when string }{
		{"/a 200 " + late + "|503|backend", "503", "late"},
		{"/" + late + "|200|cart " + early + "|503|cart", "503", "early"},
		{"/a " + late + "|503|other", "503", "late"}, // of a service that was removed
		{"/a " + late + "|503|no service", "?", "?"},
		{`{"answer":503,"began":"` + late + `","status":"200"}`, "503", "late"},
		{`{"answer":503,"status":503,"x":1}`, "503", "?"}, // by the usual fields
		{standard("/", "503", "x"), "503", "late"},
		{"a 503 b", "?", "?"},
		{"a (503) b", "503", "?"},
		{"a (200) (503) b", "?", "?"}, // one of the headers imitates the code
		{"503 200", "?", "?"},         // ambiguous: matches two formats
	} {
		s := &selector{filter: &Filter{Codes: []Codes{{503, 503}}}, formats: formats}
		code := "503"
		if !s.shows(rotation.Line{Text: []byte(c.line)}) {
			if code = "other"; s.noStatus > 0 {
				code = "?"
			}
		}
		s = &selector{filter: &Filter{Since: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)}, formats: formats}
		when := "late"
		if !s.shows(rotation.Line{Text: []byte(c.line)}) {
			if when = "early"; s.noTime > 0 {
				when = "?"
			}
		}
		if code != c.code || when != c.when {
			t.Errorf("%s: code %s, %s; want %s, %s", c.line, code, when, c.code, c.when)
		}
	}
	s := &selector{filter: &Filter{Codes: []Codes{{200, 200}}, Fields: []string{"status"}}, formats: formats}
	if !s.shows(rotation.Line{Text: []byte(`{"answer":503,"status":"200"}`)}) {
		t.Error("the named field is not read")
	}
	if f, reason := NewFormats([]logline.Format{{Text: "%RESPONSE_CODE% %QUERY_PARAM(a)%"}}, nil); f != nil ||
		!strings.Contains(reason, "%QUERY_PARAM(a)%") {
		t.Errorf("forgeable lines are read: %q", reason)
	}
}
