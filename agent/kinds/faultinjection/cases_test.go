package faultinjection_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/faultinjection"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", faultinjection.Plugin()) }
