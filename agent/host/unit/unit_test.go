package unit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/unit"
)

func TestPortsOfTheUnit(t *testing.T) {
	const plain = "LoadState=loaded\nUser=nearside\nAmbientCapabilities=\nTriggeredBy=\n"
	all := map[string]string{"dns.listen": ":53", "api.tcp": "127.0.0.1:80", "xds.tcp": "[::1]:1023",
		"metrics.listen": "127.0.0.1:1", "gossip.bind": ":1023"}
	for _, c := range []struct {
		name, first, properties string
		set                     map[string]string
		want                    []string // keys with a fault
	}{
		{"high ports", "1024", plain, map[string]string{"dns.listen": "127.0.0.1:15053"}, nil},
		{"every listener", "1024", plain, all,
			[]string{"api.tcp", "xds.tcp", "metrics.listen", "dns.listen", "gossip.bind"}},
		{"the first free port", "53", plain, map[string]string{"dns.listen": ":53"}, nil},
		{"the last reserved port", "54\n", plain, map[string]string{"dns.listen": ":53"}, []string{"dns.listen"}},
		{"no sysctl", "", plain, map[string]string{"dns.listen": "127.0.0.1:1023"}, []string{"dns.listen"}},
		{"no sysctl, free port", "", plain, map[string]string{"dns.listen": "127.0.0.1:1024"}, nil},
		{"localhost", "1024", plain, map[string]string{"dns.listen": "localhost:53"}, []string{"dns.listen"}},
		{"off", "1024", plain, map[string]string{"dns.listen": ""}, nil},
		{"any port", "1024", plain, map[string]string{"dns.listen": "127.0.0.1:0"}, nil},
		{"with the capability", "1024", strings.Replace(plain, "Capabilities=",
			"Capabilities=cap_net_admin cap_net_bind_service", 1), all, nil},
		{"with another capability", "1024", strings.Replace(plain, "Capabilities=", "Capabilities=cap_net_admin", 1),
			map[string]string{"dns.listen": ":53"}, []string{"dns.listen"}},
		{"as root", "1024", strings.Replace(plain, "User=nearside", "User=", 1), all, nil},
		{"sockets of a socket unit", "1024", strings.Replace(plain, "TriggeredBy=", "TriggeredBy=nearside.socket", 1),
			all, nil},
		{"no unit", "1024", "LoadState=not-found\nUser=\n", all, nil},
		{"no systemd", "1024", "", all, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := &config.Config{}
			for key, address := range map[string]*string{"dns.listen": &cfg.DNS.Listen, "api.tcp": &cfg.API.TCP,
				"xds.tcp": &cfg.XDS.TCP, "metrics.listen": &cfg.Metrics.Listen, "gossip.bind": &cfg.Gossip.Bind} {
				*address = c.set[key]
			}
			failing := errors.New("cannot be read")
			host := unit.Host{FirstPort: func() (string, error) {
				if c.first == "" {
					return "", failing
				}
				return c.first, nil
			}, Unit: func(context.Context) (string, error) {
				if c.properties == "" {
					return "", failing
				}
				return c.properties, nil
			}}
			var got []string
			for _, f := range host.CheckPorts(t.Context(), cfg) {
				got = append(got, f.Field)
				for _, want := range []string{c.set[f.Field], "low-ports.conf", "nearside.service"} {
					if !strings.Contains(f.Reason, want) {
						t.Errorf("%s: %q does not name %q", f.Field, f.Reason, want)
					}
				}
			}
			if strings.Join(got, " ") != strings.Join(c.want, " ") {
				t.Errorf("faults for %v, want %v", got, c.want)
			}
		})
	}
}

func TestPortOfAReceiver(t *testing.T) {
	cfg := &config.Config{}
	cfg.AccessLog.Receivers = []config.Receiver{{Name: "a", Address: "unix:a.sock"}, {Name: "b", Address: "127.0.0.1:514"}}
	host := unit.Host{FirstPort: func() (string, error) { return "1024", nil },
		Unit: func(context.Context) (string, error) { return "LoadState=loaded\nUser=nearside\n", nil }}
	got := host.CheckPorts(t.Context(), cfg)
	if len(got) != 1 || got[0].Field != "accessLog.receivers[1].address" {
		t.Errorf("faults %v, want one for the second receiver", got)
	}
}

// TestThisHost reads the host of the test, whatever it is.
func TestThisHost(t *testing.T) {
	h := unit.This()
	if first, err := h.FirstPort(); err == nil && strings.TrimSpace(first) == "" {
		t.Error("the sysctl has no text")
	}
	if faults := h.CheckPorts(t.Context(), &config.Config{}); faults != nil {
		t.Errorf("faults without a listener: %v", faults)
	}
}
