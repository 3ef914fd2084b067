package traffic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// stats counts the lines of files and returns the document with the notes.
func stats(t *testing.T, o traffic.StatsOptions) (*api.LogStats, string) {
	t.Helper()
	var notes strings.Builder
	o.Note = func(text string) { notes.WriteString(text + "\n") }
	o.Failed = func(path string, err error) { fmt.Fprintf(&notes, "%s: %v\n", path, err) }
	got, err := traffic.Stats(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return got, notes.String()
}

// request returns a line in the default format.
func request(second int, path, code string, ms int, service, client string) string {
	return fmt.Sprintf(`[2026-11-23T10:00:%02d.000Z] default "GET %s HTTP/1.1" %s - 1 2 %d 14 "-" "curl/8" "-" "7d1e" `+
		`"backend" "web" "%s" "%s" "192.0.2.2:80"`+"\n", second, path, code, ms, service, client)
}

// TestStats counts requests by service, route, status, and client, over rotated files.
func TestStats(t *testing.T) {
	path := t.TempDir() + "/a.log"
	var all strings.Builder
	for i := range 100 {
		all.WriteString(request(i/10, "/a?x="+fmt.Sprint(i), "200", i, "backend", "192.0.2.1"))
	}
	write(t, strings.TrimSuffix(path, ".log")+"-2026-11-23T10-01-00.000.log.gz", zipped(all.String()))
	write(t, path, request(19, "/b", "503", 5000, "cart", "192.0.2.9")+"other\n"+
		`{"response_code":404,"service":"cart","duration":7,"route_name":"r"}`+"\n")
	shown := func(s *api.LogStats) string {
		var out []string
		for i := range s.Items {
			g := &s.Items[i]
			of := func(v *float64) string {
				if v == nil {
					return "-"
				}
				return fmt.Sprint(*v)
			}
			out = append(out, fmt.Sprintf("%s %d %.1f %v %s %s %s %d", g.Value, g.Lines, g.PerSecond, g.Status, of(g.P50),
				of(g.P95), of(g.P99), g.Sent))
		}
		return fmt.Sprintf("%d %s %s: %s; unknown %d", s.Lines, s.First, s.Last, strings.Join(out, ", "), s.Unknown)
	}
	const span = "103 2026-11-23T10:00:00Z 2026-11-23T10:00:19Z: "
	for by, want := range map[string]string{
		"service": "backend 100 5.3 map[2xx:100] 49 94 98 200, cart 2 0.1 map[4xx:1 5xx:1] 7 7 7 2; unknown 1",
		"status": "200 100 5.3 map[2xx:100] 49 94 98 200, 404 1 0.1 map[4xx:1] 7 7 7 0, " +
			"503 1 0.1 map[5xx:1] 4992 4992 4992 2; unknown 1",
		"client": "192.0.2.1 100 5.3 map[2xx:100] 49 94 98 200, 192.0.2.9 1 0.1 map[5xx:1] 4992 4992 4992 2; unknown 2",
		"route": "/a 100 5.3 map[2xx:100] 49 94 98 200, /b 1 0.1 map[5xx:1] 4992 4992 4992 2, r 1 0.1 map[4xx:1] 7 7 7 0; " +
			"unknown 1",
	} {
		got, notes := stats(t, traffic.StatsOptions{Paths: []string{path}, By: by})
		if text := shown(got); text != span+want || notes != "" {
			t.Errorf("%s:\n%s\nwant\n%s\nnotes %s", by, text, span+want, notes)
		}
	}
	where, err := logfields.ParseCondition("duration>=90")
	if err != nil {
		t.Fatal(err)
	}
	got, notes := stats(t, traffic.StatsOptions{Paths: []string{path, path + ".none"}, By: "service", Workers: 1,
		Filter: traffic.Filter{Since: time.Date(2026, 11, 23, 10, 0, 9, 0, time.UTC), Where: []*logfields.Condition{where}}})
	if text := shown(got); !strings.Contains(text, "backend 10 1.0 map[2xx:10] 94 ") ||
		!strings.Contains(notes, "time is unknown: 2") || !strings.Contains(notes, "a.log.none") {
		t.Errorf("%s\n%s", text, notes)
	}
	if _, err := traffic.Stats(context.Background(), traffic.StatsOptions{}); err == nil {
		t.Error("a field without a name is accepted")
	}
}

// TestStatsMany counts more values than are shown, and durations over the whole range.
func TestStatsMany(t *testing.T) {
	path := t.TempDir() + "/a.log"
	var all strings.Builder
	for i := range 1200 {
		for range 1 + i%3 {
			fmt.Fprintf(&all, "{\"service\":\"s%d\",\"duration\":%d}\n", i, i)
		}
	}
	for _, ms := range []string{"1e300", "-5", "9007199254740993", "\"x\""} {
		fmt.Fprintf(&all, "{\"service\":\"many\",\"duration\":%s}\n{\"service\":\"many\",\"duration\":%s}\n", ms, ms)
	}
	write(t, path, all.String())
	got, _ := stats(t, traffic.StatsOptions{Paths: []string{path}, By: "service"})
	if got.Lines != 2408 || len(got.Items) != 1000 || got.Other != 201 || got.Items[0].Value != "many" {
		t.Errorf("%d lines, %d items, other %d, first %+v", got.Lines, len(got.Items), got.Other, got.Items[0])
	}
	for i := range got.Items[1:] {
		g := &got.Items[1+i]
		var n float64
		if _, err := fmt.Sscanf(g.Value, "s%f", &n); err != nil || math.Abs(*g.P99-n) > n/100 {
			t.Errorf("%s: p99 %v", g.Value, *g.P99)
		}
	}
	if p := got.Items[0].P99; p == nil || *p != 1<<40 {
		t.Errorf("the longest duration is %v", p)
	}
}

// TestWhere shows lines by conditions, in the formats of policies, and over several parts of files.
func TestWhere(t *testing.T) {
	path := t.TempDir() + "/a.log"
	write(t, path,
		"web>cart|/api/a|12\nweb>cart|/b|700\nweb>shop|/api/c|900\n"+`{"path":"/api/\u0064","n":{"x":1}}`+"\nx\n")
	templates := traffic.Templates(
		json.RawMessage(`{"spec":{"to":[{"default":{"backends":[{"file":{"format":{"type":"Plain",`+
			`"plain":"%KUMA_SOURCE_SERVICE%>%KUMA_DESTINATION_SERVICE%|%REQ(:PATH)%|%DURATION%\n"}}},{"file":{"format":{"json":[`+
			`{"key":"p","value":"%REQ(:PATH)%"}]}}}]}}]},"format":"%BROKEN"}`), json.RawMessage("{"))
	if len(templates) != 3 {
		t.Fatalf("%+v", templates)
	}
	formats, reason := traffic.NewFormats(nil, templates)
	if reason != "" {
		t.Error(reason)
	}
	for text, want := range map[string]string{
		"path~^/api/": "web>cart|/api/a|12\nweb>shop|/api/c|900\n" + `{"path":"/api/\u0064","n":{"x":1}}` + "\n" +
			"PATH", // the bytes of the last line reject it, so nothing is said
		"duration>500ms": "web>cart|/b|700\nweb>shop|/api/c|900\n" +
			"PATH: lines skipped because they have no value for a condition: 2\n",
		"path~^/api/ duration>500ms": "web>shop|/api/c|900\n",
		"service!=cart source=web":   "web>shop|/api/c|900\n",
		".n~1":                       `{"path":"/api/\u0064","n":{"x":1}}` + "\n",
	} {
		var where []*logfields.Condition
		for c := range strings.FieldsSeq(text) {
			p, err := logfields.ParseCondition(c)
			if err != nil {
				t.Fatal(err)
			}
			where = append(where, p)
		}
		shown, said := run(t, traffic.ShowOptions{Paths: []string{path}, Filter: traffic.Filter{Where: where},
			Formats: map[string]*traffic.Formats{path: formats}})
		got := shown
		if strings.Contains(want, "PATH") {
			got += strings.ReplaceAll(said, path, "PATH")
			want = strings.TrimSuffix(want, "PATH")
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestShowInParts checks that lines keep their order when many parts are read at the same time, and
// that the end of the context ends the reading.
func TestShowInParts(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/a.log"
	var want []string
	for n := range 40 {
		var all strings.Builder
		for i := range 2000 {
			line := fmt.Sprintf("%d %d %s", n, i, strings.Repeat("x", 100))
			want = append(want, line)
			all.WriteString(line + "\n")
		}
		name := fmt.Sprintf("%s/a-2026-01-02T03-04-%02d.000.log", dir, n)
		if n%2 == 0 {
			write(t, name+".gz", zipped(all.String()))
		} else {
			write(t, name, all.String())
		}
	}
	shown, said := run(t, traffic.ShowOptions{Paths: []string{path}, Workers: 4})
	if got := strings.Split(strings.TrimSpace(shown), "\n"); !slices.Equal(got, want) || said != "" {
		t.Errorf("%d lines, want %d: %s", len(got), len(want), said)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out := &broken{}
	for _, ctx := range []context.Context{ctx, context.Background()} {
		_ = traffic.Show(ctx, traffic.ShowOptions{Paths: []string{path}, Out: out, Note: func(string) {},
			Failed: func(path string, err error) { t.Errorf("%s: %v", path, err) }})
	}
	if out.writes > 1 {
		t.Errorf("%d writes after the first error", out.writes)
	}
}
