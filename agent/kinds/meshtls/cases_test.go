package meshtls_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/meshtls"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", meshtls.Plugin()) }
