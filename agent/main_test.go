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
	// A probe of memberlist that is under way when it is shut down ends with its time-out, a second
	// later.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
