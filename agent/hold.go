package agent

import (
	"context"
	"errors"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
)

// holdIdle is how long a holder that holds nothing waits for an agent.
const holdIdle = time.Minute

// Hold keeps the FIFOs of access logs open for the agent whose run directory it is, until the context ends. Unless it is to
// stay, it ends too when it has held nothing for a minute, and at once where the directory is served already.
func Hold(ctx context.Context, dir string, stay bool) error {
	if stay {
		return accesslog.ServeHold(ctx, dir, 0)
	}
	err := accesslog.ServeHold(ctx, dir, holdIdle)
	if errors.Is(err, accesslog.ErrHeldElsewhere) {
		return nil // two were started at once; one is enough
	}
	return err
}
