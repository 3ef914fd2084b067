package httpjson_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// TestBodyErrorsNameNoGoTypes: a client reads what its document lacks, not how the agent is
// written.
func TestBodyErrorsNameNoGoTypes(t *testing.T) {
	for body, want := range map[string]string{
		`[]`:               "the document: an object is expected, not array",
		`{"revision":"x"}`: "revision: a whole number in range is expected, not string",
		`{"revision":-1}`:  "revision: a whole number in range is expected, not number -1",
		`{"more":1}`:       `unknown field "more"`,
		`{`:                "unexpected EOF",
	} {
		var into api.Rollback
		e := httpjson.Decode([]byte(body), &into)
		if e == nil || !strings.HasSuffix(e.Detail, ": "+want) {
			t.Errorf("%s: %+v, want %q", body, e, want)
		}
	}
}
