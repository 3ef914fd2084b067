// Package envoyask lets tests of lower floors check whether Envoy loads a config.
package envoyask

import (
	"math"
	"os"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
)

// Find returns the Envoy binary in ENVOY_BIN or on PATH. It fails the test if there is none.
func Find(tb testing.TB) *envoybin.Binary {
	tb.Helper()
	e, err := envoybin.Find(os.Getenv, true)
	if err != nil || e == nil {
		tb.Fatalf("no Envoy to ask: set %s (%v)", envoybin.EnvoyVariable, err)
	}
	e.Most = math.MaxInt
	return e
}
