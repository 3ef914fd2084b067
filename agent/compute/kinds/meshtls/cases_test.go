package meshtls_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/meshtls"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", meshtls.Plugin()) }
