// Package envoyask lets tests of lower floors ask an Envoy whether it loads a config.
package envoyask

import (
	"math"
	"os"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
)

// Find returns the Envoy of ENVOY_BIN or of the PATH. The test fails where there is none.
func Find(tb testing.TB) *envoybin.Binary {
	tb.Helper()
	e, err := envoybin.Find(os.Getenv, true)
	if err != nil || e == nil {
		tb.Fatalf("no Envoy to ask: set %s (%v)", envoybin.EnvoyVariable, err)
	}
	e.Most = math.MaxInt
	return e
}
