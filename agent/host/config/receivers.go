package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// checkReceivers checks the receivers of access logs for conflicts.
func (c *Config) checkReceivers(fault faultFunc) {
	files, sockets := map[string]int{}, map[string]string{
		filepath.Clean(c.API.Socket.Path): "api.socket.path", filepath.Clean(c.XDS.Socket.Path): "xds.socket.path",
	}
	for i, r := range c.AccessLog.Receivers {
		at := fmt.Sprintf("accessLog.receivers[%d]", i)
		file := filepath.Clean(r.File)
		if j, taken := files[file]; taken {
			fault(at+".file", "%s is also in item [%d]; use different files", r.File, j)
		} else {
			files[file] = i
		}
		if path, unix := strings.CutPrefix(r.Address, unixPrefix); unix {
			clean := filepath.Clean(path)
			switch other := sockets[clean]; {
			case other != "":
				fault(at+".address", "%s is also %s; use different paths", r.Address, other)
			case path != "" && path[0] != '/':
				fault(at+".address", "%.64q is not an absolute path", path)
			case len(path) > MaxSocketBytes:
				fault(at+".address", "%s has %d bytes, and the system takes at most %d for a socket; "+
					"set a shorter path or a shorter paths.run", path, len(path), MaxSocketBytes)
			}
			sockets[clean] = at + ".address"
		}
		switch t := r.TLS; {
		case t.Key != "" && t.Cert == "":
			fault(at+".tls.key", "%q has no certificate; set tls.cert too", t.Key)
		case t.Cert != "" && t.Key == "":
			fault(at+".tls.cert", "%q has no private key; set tls.key too", t.Cert)
		case t.ClientCA != "" && t.Cert == "":
			fault(at+".tls.clientCA", "%q has no effect without TLS; set tls.cert and tls.key too", t.ClientCA)
		}
	}
}
