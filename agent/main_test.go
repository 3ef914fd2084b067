package agent_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestMain(m *testing.M) {
	if agenttest.PersonMain() || stormMain() {
		return
	}
	// When memberlist shuts down during a probe, the probe ends only with its timeout, one second
	// later.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
