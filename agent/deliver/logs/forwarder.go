package logs

import (
	"errors"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Forwarder is an [accesslog.Forwarder] as [Output].
type Forwarder struct{ *accesslog.Forwarder }

// Close implements [Output]. A forwarder that has run is closed already.
func (f Forwarder) Close() error {
	if err := f.Forwarder.Close(); !errors.Is(err, accesslog.ErrForwarding) {
		return err
	}
	return nil
}
