package proxypatch_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/proxypatch/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", proxypatch.Plugin(legacy.Kind())) }
