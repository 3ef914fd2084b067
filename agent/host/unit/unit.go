// Package unit checks a config against what the systemd unit of the package permits. It changes
// nothing, and reports nothing where the unit is not installed or systemd does not answer.
package unit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Name is the unit that runs the agent with [config.DefaultConfigFile].
const Name = "nearside.service"

// firstPort is the sysctl with the first port that needs no capability.
const firstPort = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

// Host is what CheckPorts reads.
type Host struct {
	FirstPort func() (string, error)                             // text of the sysctl
	Unit      func(context.Context) (properties string, _ error) // "NAME=VALUE" lines of systemctl show
}

// This returns the host of the process.
func This() Host {
	return Host{
		FirstPort: func() (string, error) {
			b, err := os.ReadFile(firstPort)
			return string(b), err
		},
		Unit: func(ctx context.Context) (string, error) {
			if _, err := os.Stat("/run/systemd/system"); err != nil {
				return "", err
			}
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, "systemctl", "show", "-p", "LoadState", "-p", "User", "-p",
				"AmbientCapabilities", "-p", "TriggeredBy", Name).Output()
			return string(out), err
		},
	}
}

// CheckPorts returns a fault for each listener with a port that the unit may not open. The config
// must be that of the unit. The privileges of the caller have no influence.
func (h Host) CheckPorts(ctx context.Context, cfg *config.Config) (out resource.Faults) {
	text, err := h.FirstPort()
	first, bad := strconv.Atoi(strings.TrimSpace(text))
	if errors.Join(err, bad) != nil {
		first = 1024
	}
	listeners := []struct{ key, address string }{{"api.tcp", cfg.API.TCP}, {"xds.tcp", cfg.XDS.TCP},
		{"metrics.listen", cfg.Metrics.Listen}, {"ui.listen", cfg.UI.Listen},
		{"webhook.listen", cfg.Webhook.Listen}, {"dns.listen", cfg.DNS.Listen},
		{"gossip.bind", cfg.Gossip.Bind}}
	for i, r := range cfg.AccessLog.Receivers {
		listeners = append(listeners, struct{ key, address string }{
			fmt.Sprintf("accessLog.receivers[%d].address", i), r.Address})
	}
	for _, l := range listeners {
		_, number, _ := net.SplitHostPort(l.address) // nothing of a path
		if port, err := strconv.ParseUint(number, 10, 16); err != nil || port == 0 || int(port) >= first {
			continue
		}
		out = append(out, resource.Fault{File: config.DefaultConfigFile, Field: l.key, Reason: fmt.Sprintf(
			"%q has a port below %d, and %s does not have CAP_NET_BIND_SERVICE; use a higher port, or copy "+
				"/usr/share/doc/nearside/examples/low-ports.conf to /etc/systemd/system/%s.d/ and run systemctl daemon-reload",
			l.address, first, Name, Name)})
	}
	if len(out) == 0 || h.mayOpen(ctx) {
		return nil
	}
	return out
}

// mayOpen reports whether the unit may open each port, or gets sockets from a socket unit.
func (h Host) mayOpen(ctx context.Context) bool {
	text, err := h.Unit(ctx)
	if err != nil {
		return true
	}
	p := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[name] = value
	}
	user := p["User"]
	return p["LoadState"] != "loaded" || user == "" || user == "root" || user == "0" || p["TriggeredBy"] != "" ||
		strings.Contains(p["AmbientCapabilities"], "cap_net_bind_service")
}
