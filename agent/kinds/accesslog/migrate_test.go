package accesslog_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/kinds/accesslog"
	"github.com/nearside-mesh/nearside/agent/kindtest"
)

func TestMigrations(t *testing.T) { kindtest.RunMigrations(t, "testdata/migrate", accesslog.Plugin()) }
