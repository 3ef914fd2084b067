package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/serve/logsapi"
)

// walker sends requests for the operations of docs/openapi.yaml.
type walker struct {
	*testAPI
	method, path string
	op           *specOperation
}

// walk calls a function for each operation.
func walk(a *testAPI, f func(w *walker)) {
	spec().each(func(method, path string, op *specOperation) { f(&walker{a, method, path, op}) })
}

// fill replaces the parameters of a path with objects that exist, or with others.
func fill(path string, values ...string) string {
	kind, name := "dataplanes", "web"
	switch {
	case strings.Contains(path, "_hostnames"):
		kind = "meshservices"
	case strings.HasSuffix(path, "/{plural}/{name}/dataplanes"):
		kind, name = "meshtimeouts", "web-1"
	case strings.Contains(path, "{plural}/{name}") && !strings.Contains(path, "{mesh}"):
		kind, name = "zoneegresses", "out"
	case strings.Contains(path, "/zoneegress"):
		name = "out"
	}
	return strings.NewReplacer(append(values, "{mesh}", "default", "{plural}", kind, "{name}", name, "{kind}", "dataplane",
		"{item}", "config")...).Replace(path)
}

// ask sends a request to a path below which the operation is found.
func (w *walker) ask(path string, query url.Values, body string, headers ...string) answer {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return w.do(w.method, path, body, headers...)
}

// expect checks that an answer is a problem exactly if the operation lists it.
func (w *walker) expect(got answer, status int, typ string) {
	w.t.Helper()
	r := w.op.Responses[strconv.Itoa(status)]
	listed := r != nil && slices.Contains(r.problems(), "/problems/"+typ)
	is := got.status == status && strings.Contains(got.body, `"/problems/`+typ+`"`)
	if listed != is {
		w.t.Errorf("%s: docs/openapi.yaml lists %d %s: %v; the answer is %d %.300s", got.request, status, typ, listed,
			got.status, got.body)
	}
}

// TestOpenAPIPermissions compares the permissions in docs/openapi.yaml with the list of routes, and
// with the answers to senders without a token, with a wrong one, without rights, and to browsers.
func TestOpenAPIPermissions(t *testing.T) {
	var lines []string
	spec().each(func(method, path string, op *specOperation) {
		if path == "/" {
			path = "/{$}"
		}
		p, need := op.Permission, ""
		switch p.Level {
		case "open":
			need = "open"
		case "authenticated":
			need = "any identified sender"
		case "any":
			need = "any permission"
		case "verb":
			if p.Kind == "" {
				p.Kind = "(no kind)"
			}
			if need = strings.Join(p.AnyOf, "|") + " " + p.Kind; p.Some {
				need += ", for some"
			}
		}
		lines = append(lines, fmt.Sprintf("%-6s %s: %s", method, path, need))
	})
	slices.Sort(lines)
	want, err := os.ReadFile("testdata/routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		if i >= len(lines) || lines[i] != line {
			t.Fatalf("docs/openapi.yaml has the permissions\n%s\nwhich differ from testdata/routes.txt at %q",
				strings.Join(lines, "\n"), line)
		}
	}
	if n := strings.Count(string(want), "\n"); n != len(lines) {
		t.Errorf("docs/openapi.yaml has %d operations, and testdata/routes.txt %d", len(lines), n)
	}

	a := startRoles(t)
	walk(a, func(w *walker) {
		path := fill(w.path)
		if open := w.op.Security != nil && len(*w.op.Security) == 0; open != (w.op.Permission.Level == "open") {
			t.Errorf("%s: security and x-permission differ", w.op.OperationID)
		}
		w.expect(w.ask(path, nil, ""), 401, "token-needed")
		w.expect(w.ask(path, nil, "", as("nobody")), 403, "permission-denied")
		w.expect(w.ask(path, nil, "", as("ops"), "Origin: http://x"), 403, "browser-refused")
	})
	for range 12 { // more than the limit
		a.do("GET", "/meshes", "", "Authorization: Bearer wrong")
	}
	walk(a, func(w *walker) {
		w.expect(w.ask(fill(w.path), nil, "", "Authorization: Bearer also-wrong"), 429, "too-many-requests")
	})
}

// TestOpenAPIFaults provokes the failures that do not depend on the objects.
func TestOpenAPIFaults(t *testing.T) {
	unusable := startRolesWith(t, func(o *httpapi.Options) {
		o.Suspended = func(pattern string) *api.Error {
			if api.ServedWithoutState(pattern) {
				return nil
			}
			return api.NewNotReady()
		}
	})
	walk(unusable, func(w *walker) {
		if id := w.op.OperationID; id == "logs" || id == "profile" { // logs: an agent that starts
			return
		}
		w.expect(w.ask(fill(w.path), nil, "", as("ops")), 503, "not-ready")
	})
	failing := startRolesWith(t, func(o *httpapi.Options) {
		o.Suspended = func(string) *api.Error { panic("a fault of the test") }
	})
	walk(failing, func(w *walker) {
		w.expect(w.ask(fill(w.path), nil, "", as("ops")), 500, "internal")
	})

	a := startRolesWith(t, func(o *httpapi.Options) {
		o.Envoy = func(*api.ProxyStatus) httpapi.Envoy { return talkative{} }
	})
	a.put(store.Source{Kind: store.SourceAPI}, testMeshes)
	a.reconcile()
	walk(a, func(w *walker) {
		if w.op.RequestBody != nil {
			w.expect(w.ask(fill(w.path), nil, strings.Repeat(" ", w.op.RequestBody.MaxBytes+1), as("ops")), 413, "too-large")
			if most := w.op.RequestBody.MaxBytes; most <= 1<<20 {
				if got := w.ask(fill(w.path), nil, strings.Repeat(" ", most), as("ops")); got.status == 413 {
					t.Errorf("%s with a body of %d bytes: %d %s", got.request, most, got.status, got.body)
				}
			}
		}
		for _, p := range inPathOf(w.op) {
			if p == "kind" || p == "item" || p == "plural" && strings.HasPrefix(w.path, "/{plural}") {
				continue // the server has no kinds of tokens; a first segment may be another path
			}
			switch id := w.op.OperationID; {
			case id == "attachedDataplanes" && p == "name": // as in Kuma, a missing policy selects nothing
				continue
			case (id == "put" || id == "putGlobal") && p == "name": // creates it
				continue
			case id == "drainProxy": // the server of the test drains nothing
				continue
			}
			got := w.ask(fill(w.path, "{"+p+"}", "no-such"), nil, w.body(p), as("ops"))
			w.expect(got, 404, "not-found")
		}
	})
	for path, methods := range spec().Paths {
		for _, m := range []string{"GET", "PUT", "POST", "DELETE", "PATCH"} {
			if methods[strings.ToLower(m)] == nil {
				got := a.do(m, fill(path), "", as("ops"))
				a.want(got, 405)
				for allowed := range methods {
					if !strings.Contains(got.header.Get("Allow"), strings.ToUpper(allowed)) {
						t.Errorf("%s: Allow is %q", got.request, got.header.Get("Allow"))
					}
				}
			}
		}
	}
}

// body returns a body that is valid for the operation, with one wrong value.
func (w *walker) body(wrong string) string {
	values := map[string]string{"mesh": "default", "name": "web"}
	values[wrong] = "no-such"
	switch {
	case w.op.OperationID == "put":
		return fmt.Sprintf(`{"type":"Dataplane","mesh":%q,"name":%q,"networking":{"address":"192.0.2.1","inbound":[{"port":80,`+
			`"tags":{"kuma.io/service":"web"}}]}}`, values["mesh"], values["name"])
	case strings.HasPrefix(w.op.OperationID, "setLoggersOf"):
		return `{"levels":{"":"info"}}`
	}
	return "{}"
}

func inPathOf(op *specOperation) (names []string) {
	for _, p := range op.Parameters {
		if p.In == "path" {
			names = append(names, p.Name)
		}
	}
	return names
}

// TestOpenAPILimits sends values within and beyond each limit of each parameter.
func TestOpenAPILimits(t *testing.T) {
	logs := logsapi.New(logsapi.Options{Streams: func() []api.LogStream { return nil }, Now: time.Now,
		Others:  func(context.Context, []byte, time.Duration) []api.NodeAnswer { return nil },
		DNSFile: func() string { return "" }, Policies: func() []json.RawMessage { return nil }})
	a := startRolesWith(t, func(o *httpapi.Options) { o.ReadLogs = logs.Serve })
	a.put(store.Source{Kind: store.SourceAPI}, testMeshes)
	a.reconcile()
	walk(a, func(w *walker) {
		path, required := fill(w.path), url.Values{}
		for _, p := range w.op.Parameters {
			if p.In == "query" && p.Required {
				required.Set(p.Name, "default")
				if p.Name == "verb" {
					required.Set(p.Name, "update")
				}
			}
		}
		for _, p := range w.op.Parameters {
			good, bad := p.Schema.values()
			if (p.Name == "kind" || p.Name == "type") && p.In == "query" {
				good, bad = []string{"MeshService"}, append(bad, "no-such-kind")
			}
			if w.op.OperationID == "events" {
				good = nil // an answer without an end
			}
			for i, list := range [][]string{good, bad} {
				for _, v := range list {
					got := answer{}
					switch p.In {
					case "header":
						continue
					case "path":
						got = w.ask(fill(w.path, "{"+p.Name+"}", url.PathEscape(v)), required, "{}", as("ops"))
					default:
						if v == "cpu" || p.Name == "follow" && v == "true" || w.method == "DELETE" && v == "false" {
							continue // a profile of 10 s, an answer of minutes, and deleting a resource
						}
						query := maps.Clone(required)
						if p.Name == "step" {
							query.Set("by", "time")
						}
						query[p.Name] = strings.Split(v, "\n")
						got = w.ask(path, query, "{}", as("ops"))
					}
					refused := got.status == 400 && strings.Contains(got.body, fmt.Sprintf(`"field":%q`, p.Name))
					if refused != (i == 1) {
						t.Errorf("%s: %s with the value %.80q is refused: %v; %d %.300s", w.op.OperationID, p.Name, v, refused,
							got.status, got.body)
					}
				}
			}
			if p.Required && p.In == "query" {
				query := maps.Clone(required)
				query.Del(p.Name)
				if got := w.ask(path, query, "{}", as("ops")); got.status != 400 {
					t.Errorf("%s without %s: %d", got.request, p.Name, got.status)
				}
			}
		}
	})
}

// values returns values at the limits of a schema, and values beyond them. Repeated parameters have
// lines.
func (s *specValues) values() (good, bad []string) {
	switch s.Type {
	case "array":
		good, bad = s.Items.values()
		if s.MaxItems > 0 && len(good) > 0 {
			bad = append(bad, strings.TrimSuffix(strings.Repeat(good[0]+"\n", s.MaxItems+1), "\n"))
		}
		return good, bad
	case "integer":
		return []string{strconv.Itoa(*s.Minimum), strconv.Itoa(*s.Maximum)},
			[]string{strconv.Itoa(*s.Minimum - 1), strconv.Itoa(*s.Maximum + 1), "x", "", "1.5", "1\n1"}
	case "boolean":
		return []string{"true", "false"}, []string{"yes", "", "1", "true\ntrue"}
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum, []string{"no-such-value", s.Enum[0] + "x", s.Enum[0] + "\n" + s.Enum[0] + "\n" + s.Enum[0] + "\nx"}
	case s.Pattern != "":
		good, bad = examples[s.Pattern][0], examples[s.Pattern][1]
	default:
		good = []string{"x"}
	}
	if s.MaxLength > 0 {
		bad = append(bad, strings.Repeat("x", s.MaxLength+1))
	}
	return good, bad
}

// examples has values that match patterns, and others.
var examples = map[string][2][]string{
	"^([0-9]{1,3}(-[0-9]{1,3})?|[1-9][xX][xX])$": {{"503", "5xx", "200-299"}, {"0xx", "1000", "5x"}},
	"^[^=!~<>]+(!=|!~|>=|<=|=|~|>|<)":            {{"duration>5s", "path~^/a"}, {"duration", "=1"}},
	"^([0-9a-fA-F]{32}|unsigned)?$":              {{"unsigned", strings.Repeat("0a", 16)}, {"0a", "signed"}},
	`^([0-9]+d)?([0-9.]+(ns|us|ms|s|m|h))*$|^[0-9]{4}-[0-9]{2}-[0-9]{2}T.+$`: {
		{"10m", "7d", "1d12h", "2026-01-31T12:00:00Z"}, {"x", "10", "2026"}},
	"^[^/]+/.+$": {{"MeshTimeout/default/web-1"}, {"x", "MeshTimeout/"}},
}

// startRolesWith is startRoles with other options.
func startRolesWith(t testing.TB, change func(*httpapi.Options)) *testAPI {
	t.Helper()
	return startTCP(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: rolesOf(t, access.RoleOptions{Roles: testRoles, GID: -1}), Verify: subjects}
		change(o)
	})
}
