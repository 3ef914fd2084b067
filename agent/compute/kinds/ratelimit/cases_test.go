package ratelimit_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit/legacy"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

func TestCases(t *testing.T) { kindtest.Run(t, "testdata", ratelimit.Plugin(legacykind.Kind())) }

func TestMigrations(t *testing.T) {
	kindtest.RunMigrations(t, "testdata/migrate", ratelimit.Plugin(legacykind.Kind()))
}
