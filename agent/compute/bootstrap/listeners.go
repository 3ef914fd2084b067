package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Names of the bootstrap's listeners.
const (
	ReadinessListener = "nearside-readiness"
	ProbesListener    = "nearside-probes"
)

// DefaultReadinessPort is the readiness port of injected sidecars. It is that of Kuma.
const DefaultReadinessPort = 9902

// Readiness configures a listener that answers GET /ready with 200 while the Envoy is LIVE, and
// with 503 while its health check fails. Before the first config, the Envoy accepts no connections.
// The zero value means no listener.
type Readiness struct {
	// Address is an IP address, or a variable such as $(POD_IP), which the kubelet replaces.
	Address string
	Port    uint16
}

// Probes configures a listener that forwards HTTP probes to the workload without mutual TLS. The
// zero value means no listener.
type Probes struct {
	Address string // as in Readiness
	Port    uint16
	Routes  []ProbeRoute
}

// ProbeRoute forwards GET requests for one path.
type ProbeRoute struct {
	Path         string // that clients request
	Workload     uint16 // port of the workload on 127.0.0.1
	WorkloadPath string
}

// maxListenerConnections limits the connections of each listener of the bootstrap, so that clients
// cannot use the memory of the Envoy through it.
const maxListenerConnections = 100

func (r Readiness) check() error {
	if r == (Readiness{}) {
		return nil
	}
	return checkListener("readiness", r.Address, r.Port)
}

func (p Probes) check() error {
	if p.Address == "" && p.Port == 0 && len(p.Routes) == 0 {
		return nil
	}
	faults := []error{checkListener("probes", p.Address, p.Port)}
	seen := map[string]bool{}
	for _, r := range p.Routes {
		for _, path := range [...]string{r.Path, r.WorkloadPath} {
			if !strings.HasPrefix(path, "/") || !utf8.ValidString(path) || strings.ContainsAny(path, "?#\x00") {
				faults = append(faults, fmt.Errorf("path of a probe %q: want a path that begins with / and has no query", path))
			}
		}
		if r.Workload == 0 {
			faults = append(faults, fmt.Errorf("path of a probe %q: the port of the workload is missing", r.Path))
		}
		if seen[r.Path] {
			faults = append(faults, fmt.Errorf("path of a probe %q: listed twice", r.Path))
		}
		seen[r.Path] = true
	}
	return errors.Join(faults...)
}

// checkListener rejects an address at which Envoy cannot listen.
func checkListener(what, address string, port uint16) error {
	if port == 0 {
		return fmt.Errorf("%s port: required with an address", what)
	}
	if name, ok := strings.CutPrefix(address, "$("); ok {
		if name, ok = strings.CutSuffix(name, ")"); ok && isVariable(name) {
			return nil
		}
	} else if addr, err := netip.ParseAddr(address); err == nil && addr.Zone() == "" {
		return nil
	}
	return fmt.Errorf("%s address %q: want an IP address without a zone, such as 0.0.0.0 or 10.1.2.3", what, address)
}

// isVariable reports whether a text is the name of an environment variable.
func isVariable(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// writeClusters writes one cluster for each port of the workload.
func (p Probes) writeClusters(b *bytes.Buffer) {
	var ports []uint16
	for _, r := range p.Routes {
		ports = append(ports, r.Workload)
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		fmt.Fprintf(b, probeClusterText, ProbesListener, port, ProbesListener, port, port)
	}
}

// writeListeners writes the listeners and the end of the static resources.
func (o *Options) writeListeners(b *bytes.Buffer) {
	if o.Readiness.Port == 0 && o.Probes.Port == 0 {
		return
	}
	b.WriteString("  listeners:\n")
	if r := o.Readiness; r.Port > 0 {
		fmt.Fprintf(b, listenerText, ReadinessListener, yamlString(r.Address), r.Port, ReadinessListener)
		b.WriteString(healthFilterText + routerText + "          route_config: {}\n")
	}
	if p := o.Probes; p.Port > 0 {
		fmt.Fprintf(b, listenerText, ProbesListener, yamlString(p.Address), p.Port, ProbesListener)
		b.WriteString(routerText + probeHostText)
		for _, r := range p.Routes {
			fmt.Fprintf(b, probeRouteText, yamlString(r.Path), ProbesListener, r.Workload, yamlString(r.WorkloadPath))
		}
	}
}

// writeListenerLimits writes the limits of the listeners into the runtime layer.
func (o *Options) writeListenerLimits(b *bytes.Buffer) {
	for _, l := range [...]struct {
		name string
		port uint16
	}{{ReadinessListener, o.Readiness.Port}, {ProbesListener, o.Probes.Port}} {
		if l.port > 0 {
			fmt.Fprintf(b, listenerLimitText, l.name, maxListenerConnections)
		}
	}
}

// The limit of all connections does not apply to these listeners, so that an Envoy with many
// clients stays ready. Therefore each has its own limit.
const (
	listenerText = `  - name: %s
    address:
      socket_address:
        address: %s
        port_value: %d
    ignore_global_conn_limit: true
    bypass_overload_manager: true
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: %s
          codec_type: HTTP1
          common_http_protocol_options:
            idle_timeout: 5s
            max_requests_per_connection: 1
          request_headers_timeout: 5s
          http_filters:
`
	healthFilterText = `          - name: envoy.filters.http.health_check
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck
              pass_through_mode: false
              headers:
              - name: :path
                string_match:
                  exact: /ready
`
	routerText = `          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
`
	probeHostText = `          route_config:
            virtual_hosts:
            - name: probes
              domains: ["*"]
              routes:
`
	// The kubelet limits the time of a probe.
	probeRouteText = `              - match:
                  path: %s
                  headers:
                  - name: :method
                    string_match:
                      exact: GET
                route:
                  cluster: %s-%d
                  prefix_rewrite: %s
                  timeout: 0s
`
	probeClusterText = `  - name: %s-%d
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: %s-%d
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                address: 127.0.0.1
                port_value: %d
`
	listenerLimitText = `      envoy.resource_limits.listener.%s.connection_limit: %d
`
)
