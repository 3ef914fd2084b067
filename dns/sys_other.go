//go:build !linux || (!amd64 && !arm64)

package dns

import (
	"net"
	"net/netip"
	"syscall"
)

func prepare(bool) func(network, address string, c syscall.RawConn) error { return nil }

func wantDestination(*net.UDPConn) error { return nil }

func listens(*net.TCPListener) bool { return true }

func destination([]byte) netip.Addr { return netip.Addr{} }

func appendSource(b []byte, _ netip.Addr) []byte { return b }

func passing(error) bool { return false }
