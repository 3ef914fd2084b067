package faultinjection_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", faultinjection.Plugin(legacykind.Kind())) }
