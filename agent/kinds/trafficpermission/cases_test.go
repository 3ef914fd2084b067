package trafficpermission_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/trafficpermission"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", trafficpermission.Plugin()) }
