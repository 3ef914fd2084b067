package agent_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/agenttest"
)

func TestMain(m *testing.M) {
	if agenttest.PersonMain() {
		return
	}
	goleak.VerifyTestMain(m)
}
