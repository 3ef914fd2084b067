package receive

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(killVariable); path != "" {
		os.Exit(receiveUntilKilled(path))
	}
	goleak.VerifyTestMain(m)
}
