package agent

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// portTaken is the error of an address that cannot be opened; where another process has it, it
// tells how to find that.
func portTaken(address string, err error) error {
	_, port, split := net.SplitHostPort(address)
	if split != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("another process listens on %s; find it with \"ss -lntup 'sport = :%s'\" and stop it, "+
		"or give another address", address, port)
}
