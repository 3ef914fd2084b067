package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// TestPanicShowsNoKey checks that keys in a panic's value are neither logged nor returned.
func TestPanicShowsNoKey(t *testing.T) {
	_, key := secrettest.Authority(t, "x")
	var leaks secrettest.Leaks
	leaks.Key(t, "key", key)
	conf := &resource.MTLSConf{Key: &resource.KeySource{InlineString: secret.NewText(string(key)),
		Inline: secret.NewBytes(key)}}
	mesh := &resource.Mesh{MTLS: &resource.MTLS{Backends: []resource.MTLSBackend{{Name: "own", Conf: conf}}}}
	for _, v := range []any{
		mesh, *mesh, mesh.MTLS.Backends, *conf, *conf.Key, &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: "m"},
			Spec: mesh}, string(key), errors.New(string(key)), fmt.Errorf("%q", key), fmt.Sprintf("%v %+v", conf, *conf.Key),
	} {
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var log bytes.Buffer
			_, err := guard(slog.New(handler(&log)), "a test", func() (int, error) { panic(v) })
			if err == nil || !strings.Contains(log.String(), "the affected object keeps its last config") ||
				!strings.Contains(log.String(), "panic_internal_test.go") {
				t.Fatalf("%T: %v, %s", v, err, log.String())
			}
			if got := leaks.In([]byte(log.String() + err.Error())); got != "" {
				t.Errorf("%T: %s", v, got)
			}
		}
	}
}
