package gossip

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain ignores probes of memberlist: its Shutdown does not wait for them, and they end after a
// few seconds.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}
