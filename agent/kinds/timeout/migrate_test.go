package timeout_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/timeout"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) { kindtest.RunMigrations(t, "testdata/migrate", timeout.Plugin()) }
