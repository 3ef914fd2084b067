package otlp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/otlp"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestOTLPOverHTTP checks the requests to a collector by HTTP, and that its statuses are handled
// like those of gRPC: some are tried again, others drop the records.
func TestOTLPOverHTTP(t *testing.T) {
	e := &endpoint{t: t}
	var wrong []string
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request logspb.LogsData
		if err != nil || proto.Unmarshal(body, &request) != nil || r.Method != http.MethodPost ||
			r.URL.Path != "/x/v1/logs" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			wrong = append(wrong, r.Method+" "+r.URL.Path)
		}
		switch calls++; {
		case calls == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case calls == 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case bytes.Contains(body, []byte("record 25")):
			w.WriteHeader(http.StatusBadRequest)
		case bytes.Contains(body, []byte("record 55")):
			e.export(&request)
			partial := protowire.AppendVarint([]byte{1 << 3}, 3)
			w.Write(protowire.AppendBytes([]byte{1<<3 | 2}, partial))
		default:
			e.export(&request)
		}
	}))
	defer server.Close()
	o, stop, call := relay(t, otlp.Route{Authority: "web", Endpoint: server.URL + "/x/v1/logs", Allow: onlyMe,
		Spool: spool.Options{Dir: filepath.Join(t.TempDir(), "spool")}})
	sendLogs(t, call, "web", 0, 100) // 10 per request
	s := accesslogtest.Until(t, routeStats{o, "web"}, "done", func(s accesslog.Stats) bool {
		return s.Written+s.Dropped[accesslog.CauseRejected] == 100
	})
	stop()
	if s.Written != 87 || s.Dropped[accesslog.CauseRejected] != 13 {
		t.Errorf("%+v", s)
	}
	if want := append(records(0, 20), records(30, 100)...); !slices.Equal(e.got, want) || len(wrong) > 0 {
		t.Errorf("%d records: %q, wrong requests: %q", len(e.got), e.got, wrong)
	}
}

func TestOTLPInvalidURL(t *testing.T) {
	for _, u := range []string{"ftp://a:1/x", "http://a/x", "http://u:p@a:1/x", "http://:1/x", "http://%zz:1"} {
		o, _, _ := relay(t)
		err := o.SetRoute(otlp.Route{Authority: "web", Endpoint: u, Allow: onlyMe})
		if err == nil || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("%s: %v", u, err)
		}
	}
}
