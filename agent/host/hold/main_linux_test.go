package hold

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderVariable); dir != "" {
		os.Exit(holdUntilIdle(dir))
	}
	goleak.VerifyTestMain(m)
}
