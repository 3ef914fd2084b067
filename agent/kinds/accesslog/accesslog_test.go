package accesslog_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/accesslog"
	legacykind "github.com/nearside-mesh/nearside/agent/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", accesslog.Plugin(legacykind.Kind())) }
