package agent

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// portTaken is the error of an address that cannot be opened, and where another process has it, how to find that.
func portTaken(key, address string, err error) error {
	_, port, split := net.SplitHostPort(address)
	if split != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w", key, err)
	}
	return fmt.Errorf("%s: another process listens on %s; find it with \"ss -lntup 'sport = :%s'\" and stop it, or give another address", key, address, port)
}
