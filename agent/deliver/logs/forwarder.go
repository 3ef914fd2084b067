package logs

import (
	"errors"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Forwarder adapts a [spool.Forwarder] to [Output].
type Forwarder struct{ *spool.Forwarder }

// Close implements [Output]. After Run, it does nothing.
func (f Forwarder) Close() error {
	if err := f.Forwarder.Close(); !errors.Is(err, spool.ErrForwarding) {
		return err
	}
	return nil
}
