package logs

import (
	"errors"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Forwarder is an [spool.Forwarder] as [Output].
type Forwarder struct{ *spool.Forwarder }

// Close implements [Output]. A forwarder that has run is closed already.
func (f Forwarder) Close() error {
	if err := f.Forwarder.Close(); !errors.Is(err, spool.ErrForwarding) {
		return err
	}
	return nil
}
