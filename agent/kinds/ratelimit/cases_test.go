package ratelimit_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", ratelimit.Plugin()) }
