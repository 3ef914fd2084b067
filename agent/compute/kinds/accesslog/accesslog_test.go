package accesslog_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", accesslog.Plugin(legacykind.Kind())) }
