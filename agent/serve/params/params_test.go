package params_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/params"
)

const config = "/meshes/{mesh}/dataplanes/{name}/_config"

// request is a request for the config of default/web with a raw query.
func request(query string) *http.Request {
	r := &http.Request{URL: &url.URL{Path: "/", RawQuery: query}}
	r.SetPathValue("mesh", "default")
	r.SetPathValue("name", "web")
	return r
}

func TestCheck(t *testing.T) {
	long := strings.Repeat("é", params.MaxName)
	for _, tc := range []struct{ method, pattern, query, want string }{
		{"GET", config, "", ""},
		{"GET", config, "shadow=true&include=diff", ""},
		{"GET", config, "shadow=1", `query parameter shadow: "1" is invalid; give true or false, once`},
		{"GET", config, "shadow=true&shadow=false", `"true,false" is invalid; give true or false, once`},
		{"GET", config, "include=fields", `query parameter include: "fields" is invalid; use one of diff`},
		{"GET", config, "size=1", "unknown query parameter size; this path has include, shadow, computed"},
		{"GET", config, "a;b=1", "the query cannot be parsed; separate parameters with &"},
		{"GET", config, "%zz", "the query cannot be parsed"},
		{"GET", config, strings.Repeat("x", 9999) + "=1", "…"},
		{"GET", "/v1/kinds", "a=1", "this path has no query parameters"},
		{"GET", "/v1/services", "size=0", `"0" is invalid; give one whole number from 1 to 10000`},
		{"GET", "/v1/services", "size=10001", "from 1 to 10000"},
		{"GET", "/v1/services", "size=1&size=2", `"1,2" is invalid; give one whole number`},
		{"GET", "/v1/services", "size=", "give one whole number"},
		{"GET", "/v1/dns", "size=0&offset=2147483647", ""},
		{"GET", "/v1/dns", "offset=2147483648", "from 0 to 2147483647"},
		{"GET", "/v1/services", "name=" + url.QueryEscape(long), ""},
		{"GET", "/v1/services", "name=" + url.QueryEscape(long+"x"), "it has 254 characters, at most 253 are allowed"},
		{"GET", "/v1/services", "name=a&name=b", "query parameter name: is given 2 times; give it once"},
		{"GET", "/v1/services", "name=", ""},
		{"GET", "/v1/access/can", "verb=get&feature=patch-unsafe,log-path", ""},
		{"GET", "/v1/access/can", "verb=steal", "use one of get, list"},
		{"GET", "/v1/access/can", "verb=get&feature=a,log-path", `"a" is invalid; use one of patch-unsafe, log-path`},
		{"GET", "/v1/logs", "where=a%3D1&where=b%3D2", ""},
		{"GET", "/v1/logs", strings.Repeat("where=a%3D1&", 17), "is given 17 times; give it at most 16 times"},
		{"GET", "/livez", "verbose", ""},
		{"GET", "/livez", "verbose=false", "use one of 1, true"},
		{"GET", "/dataplanes/_overview", "gateway=maybe", "give true or false, once"},
		{"GET", "/dataplanes/_overview", "tag=a:b&tag=c:d", ""},
	} {
		e := params.Check(tc.method, tc.pattern, request(tc.query))
		switch {
		case e == nil && tc.want != "":
			t.Errorf("%s?%.80s: no error, want %q", tc.pattern, tc.query, tc.want)
		case e == nil:
		case e.Status != 400 || e.Type != api.ProblemInvalid || tc.want == "" || !strings.Contains(e.Detail, tc.want):
			t.Errorf("%s?%.80s: %v, want %q", tc.pattern, tc.query, e, tc.want)
		case len(e.Detail) > 1000:
			t.Errorf("%s?%.80s: the detail has %d bytes", tc.pattern, tc.query, len(e.Detail))
		}
	}
	r := request("")
	r.SetPathValue("name", long+"x")
	if e := params.Check("GET", config, r); e == nil || !strings.Contains(e.Detail, "path parameter name: ") {
		t.Errorf("a name of 254 characters in the path: %v", e)
	}
}

// FuzzCheck: each query has no error, or one that names a parameter and quotes only a part of it.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"shadow=true", "include=diff,diff", "a;b", "%ff=%00", "size=1e3", "\xff"} {
		f.Add(s, "web")
	}
	f.Fuzz(func(t *testing.T, query, name string) {
		for _, pattern := range []string{config, "/v1/services", "/v1/logs", "/v1/access/can"} {
			r := request(query)
			r.SetPathValue("name", name)
			if e := params.Check("GET", pattern, r); e != nil && (e.Status != 400 || len(e.Detail) > 2000) {
				t.Errorf("%s?%q: %v", pattern, query, e)
			}
		}
	})
}
