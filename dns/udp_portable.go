//go:build !linux || (!amd64 && !arm64) || portable

package dns

import "net"

func (s *Server) serveUDP(c *net.UDPConn, count *counters) error { return s.serveOne(c, count) }
