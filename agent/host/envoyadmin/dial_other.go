//go:build !linux

package envoyadmin

import (
	"context"
	"errors"
	"net"
)

// dial fails: whose socket it is is known on Linux alone.
func (e Envoy) dial(context.Context) (net.Conn, error) {
	return nil, errors.New("whose admin socket it is is known on Linux alone")
}
