package proxypatch_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", proxypatch.Plugin(legacy.Kind())) }
