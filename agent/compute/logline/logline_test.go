package logline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/logline"
)

var names = []string{"START_TIME", "UPSTREAM_CLUSTER", "RESPONSE_CODE"}

// TestReader checks the values that are read from JSON and text lines, and that lines of other
// formats are refused.
func TestReader(t *testing.T) {
	text := logline.Format{Text: "[%START_TIME%] %RESPONSE_CODE% %REQ(A)% %UPSTREAM_CLUSTER%\n"}
	fields := logline.Format{JSON: map[string]any{"t": "%START_TIME%", "code": "%RESPONSE_CODE%",
		"to": "to %UPSTREAM_CLUSTER%", "agent": "%REQ(USER-AGENT)%", "mesh": "default", "deep": map[string]any{"a": "b"}}}
	for _, c := range []struct {
		name, line string
		format     logline.Format
		want       []string // nil if the line does not have the format
	}{
		{"text", "[2026-11-23T10:00:00.000Z] 200 any thing backend",
			text, []string{"2026-11-23T10:00:00.000Z", "backend", "200"}},
		{"text, other", "2026-11-23T10:00:00.000Z 200 a backend", text, nil},
		{"JSON", `{"t":"2026-11-23T10:00:00.000Z","code":200,"to":"to backend","agent":"\"},{\"to\":\"to cart","mesh":"default","deep":{"a":1}}`,
			fields, []string{"2026-11-23T10:00:00.000Z", "backend", "200"}},
		{"JSON without values", `{"code":null,"mesh":"default"}`, fields, []string{"", "", ""}},
		{"JSON, the code as text", `{"code":"404"}`, fields, []string{"", "", "404"}},
		{"JSON, another constant", `{"code":200,"mesh":"other"}`, fields, nil},
		{"JSON, another field", `{"code":200,"mesh":"default","more":1}`, fields, nil},
		{"JSON, an object for a value", `{"code":{"a":1}}`, fields, nil},
		{"JSON, a truth value", `{"code":true}`, fields, nil},
		{"JSON, not a value of the operator", `{"to":"to a b"}`, fields, nil},
		{"JSON, broken", `{"code":200`, fields, nil},
		{"JSON, a list", `[1]`, fields, nil},
		{"JSON, nothing", ``, fields, nil},
		{"JSON, null", `null`, fields, nil},
	} {
		r, err := logline.NewReader(c.format, nil, names...)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := r.Read([]byte(c.line))
		if ok != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q %v, want %q", c.name, got, ok, c.want)
		}
	}
	if r, err := logline.NewReader(logline.Format{JSON: map[string]any{"a": "%REQ(A)% %RESPONSE_CODE% %REQ(B)%"}}, nil,
		names...); err != nil || r.Has(2) || r.Hidden(2) == nil || !strings.Contains(r.Hidden(2).Error(), `field "a"`) {
		t.Errorf("%v %v", r, err)
	}
	if _, err := logline.NewReader(logline.Format{Text: "%NOSUCH%"}, nil, names...); err == nil {
		t.Error("an operator that does not exist is taken")
	}
	r, err := logline.NewReader(logline.Format{Text: "%KUMA_MESH%|%RESPONSE_CODE%"}, []string{"KUMA_MESH"},
		"RESPONSE_CODE", "KUMA_MESH")
	if got, ok := r.Read([]byte("default|503")); err != nil || !ok || !slices.Equal(got, []string{"503", "default"}) {
		t.Errorf("%q %v %v", got, ok, err)
	}
	if _, ok := r.Read([]byte("de fault|503")); ok {
		t.Error("a name with a space is taken")
	}
}

// TestForgeable checks which operators can write line breaks into a text log.
func TestForgeable(t *testing.T) {
	for text, want := range map[string]string{
		"%START_TIME% %QUERY_PARAM(a)%": "%QUERY_PARAM(a)%",
		"%QUERY_PARAMS%":                "%QUERY_PARAMS%",
		"%QUERY_PARAMS(ORIG)%":          "",
		"%REQ(A)%":                      "",
		"%NOSUCH%":                      "",
	} {
		if got := (&logline.Format{Text: text}).Forgeable(); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := (&logline.Format{JSON: map[string]any{"a": "%QUERY_PARAM(a)%"}}).Forgeable(); got != "" {
		t.Errorf("JSON: %q", got)
	}
}

func formats(texts ...string) []logline.Format {
	var out []logline.Format
	for _, s := range texts {
		out = append(out, logline.Format{Text: s})
	}
	return out
}

// TestFamilies checks that formats that differ only in words form one family, and that the words in
// a line identify its format.
func TestFamilies(t *testing.T) {
	const http, tcp = "[%%START_TIME%%] \"%%REQ(:PATH)%%\" %%RESPONSE_CODE%% \"web\" \"%s\" \"%%UPSTREAM_HOST%%\"",
		"[%%START_TIME%%] web->%%UPSTREAM_HOST%%(%s) took %%DURATION%%ms"
	list := formats(fmt.Sprintf(http, "backend"), fmt.Sprintf(http, "backend-2"), fmt.Sprintf(tcp, "db"),
		fmt.Sprintf(http, "backend"), fmt.Sprintf(tcp, "external"), "%BROKEN%", fmt.Sprintf(http, "a/b"))
	list = append(list, logline.Format{JSON: map[string]any{"d": "cart", "a": "%REQ(A)%"}},
		logline.Format{JSON: map[string]any{"d": "shop", "a": "%REQ(A)%"}})
	families, faults := logline.Families(list, "START_TIME", "UPSTREAM_HOST")
	if len(families) != 4 || faults[5] == nil ||
		slices.ContainsFunc(faults[:5], func(err error) bool { return err != nil }) {
		t.Fatalf("%d families, %v", len(families), faults)
	}
	for line, want := range map[string]string{
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "backend" "10.0.0.1:80"`: "0 [0 3] " +
			"[backend] 10.0.0.1:80",
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "backend-2" "10.0.0.1:80"`: "0 [1] [backend-2] 10.0.0.1:80",
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "gone" "-"`:                "0 [] [gone] -",
		// the path, which the client chose, imitates the fields of another format
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "backend-2" "10.0.0.1:80" 200 "web" "backend" "10.0.0.9:80"`: "0 [0 3] " +
			"[backend] 10.0.0.9:80",
		`[2026-11-23T10:00:00.000Z] web->10.0.0.1:80(db) took 5ms`:           "1 [2] [db] 10.0.0.1:80",
		`[2026-11-23T10:00:00.000Z] web->-(external) took 5ms`:               "1 [4] [external] -",
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "a/b" "-"`:                 "2 [6] [] -",
		`{"a":"x\",\"d\":\"shop","d":"cart"}`:                                "3 [7] [cart] ",
		`{"d":"shop"}`:                                                       "3 [8] [shop] ",
		`[2026-11-23T10:00:00.000Z] "/" 200 "other" "backend" "10.0.0.1:80"`: "",
		`[2026-11-23T10:00:00.000Z] "/" 200 "web" "` + "x\ny: z" + `" "-"`:   "",
		`x`: "",
		`[2026-11-23T10:00:00.000Z] web->10.0.0.1:80(db) took 5ms, [2026-11-23T10:00:00.000Z] web->-(db) took 5ms`: "",
		`[2026-11-23T10:00:00.000Z] "` + strings.Repeat(`" 200 "web" "backend`, 5) +
			`" 200 "web" "backend-2" "::1"`: "0 [1] [backend-2] ::1",
	} {
		got := ""
		for i, f := range families {
			if e, ok := f.Read([]byte(line)); ok {
				if got != "" {
					t.Errorf("%s is of two families", line)
				}
				got = fmt.Sprint(i, " ", e.Members, " ", e.Words, " ", e.Values[1])
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	// A family with one format identifies a line only if the position of the word is known.
	for text, want := range map[string]string{"%START_TIME% db": "[] [cart] true", "db %START_TIME% db": "[] [] false"} {
		one, _ := logline.Families([]logline.Format{{Text: text, Name: "db"}}, "START_TIME")
		e, ok := one[0].Read([]byte("- cart"))
		if got := fmt.Sprint(e.Members, e.Words, ok); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: %s", text, got)
		}
	}
	hidden, _ := logline.Families(formats("%REQ(A)% x %REQ(B)% %UPSTREAM_HOST%", "%REQ(A)% y %REQ(B)% %UPSTREAM_HOST%"),
		"UPSTREAM_HOST")
	if hasWords, why := hidden[0].Words(); hasWords || why == nil ||
		!strings.Contains(why.Error(), "the value of %REQ(A)% before it may hold the text that follows it") {
		t.Errorf("%v %v", hasWords, why)
	}
	if e, ok := hidden[0].Read([]byte("x x 10.0.0.1:80")); !ok || len(e.Members) != 2 || e.Values[0] != "10.0.0.1:80" {
		t.Errorf("%+v %v", e, ok)
	}
}

// TestLoggers checks that Loggers finds the access loggers in all fields where Envoy accepts them.
func TestLoggers(t *testing.T) {
	const log = `{"name":"envoy.access_loggers.file",%s"typedConfig":{"path":"/%s","logFormat":{"textFormatSource":{"inlineString":"x"}}}}`
	l := fmt.Sprintf(`{"accessLog":[%s],"filterChains":[{"filters":[{"name":"a"},{"typedConfig":{"cluster":"c","accessLog":[%s]}}]}],"defaultFilterChain":{"filters":[{"typedConfig":{"accessLog":[%s,{"name":"otel"}]}}]}}`,
		fmt.Sprintf(log, "", "own"), fmt.Sprintf(log, `"filter":{"a":{}},`, "chain"), fmt.Sprintf(log, "", "default"))
	got, err := logline.Loggers("l", json.RawMessage(l))
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, x := range got {
		text = append(text, fmt.Sprint(x.Path, x.Filtered, x.Listener, x.Cluster, x.Chain, x.Format.Text))
	}
	if want := []string{"/own false true-1 x", "/chain true false c 0 x", "/default false false -1 x",
		"false false -1"}; strings.ReplaceAll(strings.Join(text, ";"), " ", "") !=
		strings.ReplaceAll(strings.Join(want, ";"), " ", "") {
		t.Errorf("%q", text)
	}
	if _, err := logline.Loggers("l", json.RawMessage(`{"accessLog":1}`)); err == nil ||
		!strings.Contains(err.Error(), "listener l") {
		t.Errorf("%v", err)
	}
}

// FuzzFamilies checks that each value that is read from a line is part of that line, and that a
// line that matches several formats of a family is attributed to all of them.
func FuzzFamilies(f *testing.F) {
	f.Add("%START_TIME% a %UPSTREAM_HOST%", "%START_TIME% b %UPSTREAM_HOST%", "- b 10.0.0.1:80", false)
	f.Add("\"a\" %REQ(B)%", "\"c\" %REQ(B)%", `"a" x "c"`, false)
	f.Add("a", "%UPSTREAM_HOST%", `{"a":"a","b":"-"}`, true)
	f.Fuzz(func(t *testing.T, a, b, line string, asJSON bool) {
		list := formats(a, b)
		list[0].Name, list[1].Name = "a", "a"
		if asJSON {
			list = []logline.Format{{JSON: map[string]any{"a": a, "b": b}}, {JSON: map[string]any{"a": b, "b": a}}}
		}
		families, faults := logline.Families(list, "START_TIME", "UPSTREAM_HOST")
		for _, family := range families {
			e, ok := family.Read([]byte(line))
			if !ok {
				continue
			}
			for _, v := range slices.Concat(e.Values, e.Words) {
				if !asJSON && !strings.Contains(line, v) {
					t.Errorf("%q is not in the line", v)
				}
			}
			for _, m := range family.Members {
				single, err := logline.NewReader(list[m], nil, "START_TIME", "UPSTREAM_HOST")
				if err != nil {
					t.Fatal(err)
				}
				hasWords, _ := family.Words()
				if _, alone := single.Read([]byte(line)); alone && hasWords && !slices.Contains(e.Members, m) &&
					len(family.Members) > 1 {
					t.Errorf("format %d has written %q and is not among %v", m, line, e.Members)
				}
			}
		}
		if len(families) == 0 && faults[0] == nil && faults[1] == nil {
			t.Error("no family and no fault")
		}
	})
}
