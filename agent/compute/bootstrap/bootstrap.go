package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxSocketPath is the maximum length of a unix socket's path in bytes (sun_path of unix(7) without
// the final NUL).
const maxSocketPath = 107

// xdsCluster is the bootstrap's cluster for the agent.
const xdsCluster = "nearside-xds"

// StaticClusters returns the names of the bootstrap's clusters.
func StaticClusters() []string { return []string{xdsCluster, policy.AdminCluster} }

// maxBootstrapPart is the maximum size in bytes of the Dataplane and of the annotations, so that
// both fit into the node metadata that the agent accepts.
const maxBootstrapPart = 120 << 10

// DefaultMaxConnections is the default maximum number of an Envoy's connections.
const DefaultMaxConnections = 50_000

// DefaultConcurrency is the default number of an Envoy's worker threads.
const DefaultConcurrency = 2

// Flags returns the flags of an Envoy besides those for its bootstrap. With hot restart, several
// Envoys on one node need distinct base IDs, and each leaves a file in /dev/shm when it exits.
// Connections of a replaced listener drain within 30 s instead of ten minutes. Envoy flushes its
// access logs every second. A concurrency of 0 uses all CPUs of the node.
func Flags(concurrency uint32) []string {
	flags := []string{"--disable-hot-restart", "--drain-time-s", "30", "--drain-strategy", "immediate",
		"--file-flush-interval-msec", "1000"}
	if concurrency > 0 {
		flags = append(flags, "--concurrency", strconv.FormatUint(uint64(concurrency), 10))
	}
	return flags
}

// Options holds the inputs of a bootstrap.
type Options struct {
	Type        node.Type  // zone proxies have neither mesh nor Dataplane
	Mesh, Name  string     // of the resource; see ProxyRef.NodeID
	Cluster     string     // node.cluster: the service of the proxy, or its name if empty
	XDSSocket   string     // absolute path of the agent's xDS socket, at most 107 bytes; empty with XDSAddress
	XDSAddress  XDSAddress // the agent's address over TCP
	Token       string     // sent to the agent with each stream (Authorization: Bearer), or ""
	AdminSocket string     // absolute path of Envoy's admin socket, at most 107 bytes, or "" for no admin interface
	// Dataplane is the Dataplane as JSON, which the agent reads from the node metadata, or nil.
	Dataplane   []byte
	Annotations map[string]string // for the node metadata
	Zone        string            // of the proxy, its locality, or ""
	// MaxConnections limits the Envoy's concurrent downstream connections, and MaxHeapBytes its heap:
	// at 95 % Envoy releases memory, at 98 % it rejects requests. 0 means no limit.
	MaxConnections, MaxHeapBytes uint64
	// Readiness is where the Envoy says that it has its config.
	Readiness Readiness
	// Probes are paths of the workload that the Envoy serves to the kubelet.
	Probes Probes
	// StatsTags adds the tags of statistics that Kuma's dashboards use. They slow down the start of an
	// Envoy.
	StatsTags bool
}

// Render returns the bootstrap of an Envoy 1.36 to 1.40 as YAML: delta ADS over the agent's unix
// socket, a stable node ID, a raised RE2 limit, and the admin interface on a unix socket. Without
// an agent, an Envoy waits for its first config and is not LIVE. It reconnects within two seconds
// once the agent is back. The bootstrap contains no secret except the token. The same options give
// the same bytes. The error lists all faults.
func Render(o Options) ([]byte, error) {
	var faults []error
	id := node.Ref{Type: o.Type, Mesh: o.Mesh, Name: o.Name}.NodeID()
	if strings.Contains(o.Mesh, ".") {
		faults = append(faults,
			fmt.Errorf("mesh %q: a mesh name has no dot, since the node id is split at the first", o.Mesh))
	} else if ref, err := node.ParseRef(id); err != nil {
		faults = append(faults, err)
	} else if ref.Type != o.Type {
		faults = append(faults, fmt.Errorf("mesh %q: the name is missing", o.Mesh))
	}
	if o.Type != node.ProxyDataplane && (o.Mesh != "" || len(o.Dataplane) > 0) {
		faults = append(faults, fmt.Errorf("proxy of the type %s: it has no mesh and no Dataplane: remove them", o.Type))
	}
	cluster := o.Cluster
	if cluster == "" {
		cluster = o.Name
	}
	if !utf8.ValidString(cluster) {
		faults = append(faults, fmt.Errorf("cluster %q: not UTF-8", cluster))
	}
	server, err := o.xdsServer()
	faults = append(faults, err, checkToken(o.Token))
	if o.AdminSocket != "" {
		faults = append(faults, checkSocketPath("admin", o.AdminSocket))
		if o.AdminSocket == o.XDSSocket {
			faults = append(faults, fmt.Errorf("path of the admin socket %q: it is that of the xDS socket", o.AdminSocket))
		}
	}
	dataplane, err := compactJSON(o.Dataplane)
	faults = append(faults, err, checkAnnotations(o.Annotations))
	if !utf8.ValidString(o.Zone) {
		faults = append(faults, fmt.Errorf("zone %q: not UTF-8", o.Zone))
	}
	faults = append(faults, o.Readiness.check(), o.Probes.check())
	if o.MaxConnections > math.MaxInt64 {
		faults = append(faults,
			fmt.Errorf("max connections %d: at most %d are possible", o.MaxConnections, uint64(math.MaxInt64)))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "node:\n  id: %s\n  cluster: %s\n", yamlString(id), yamlString(cluster))
	if o.Zone != "" {
		fmt.Fprintf(&b, "  locality:\n    zone: %s\n", yamlString(o.Zone))
	}
	if dataplane != "" || len(o.Annotations) > 0 || o.Type != node.ProxyDataplane {
		b.WriteString("  metadata:\n")
		if len(o.Annotations) > 0 {
			b.WriteString("    annotations:\n")
			for _, k := range slices.Sorted(maps.Keys(o.Annotations)) {
				fmt.Fprintf(&b, "      %s: %s\n", yamlString(k), yamlString(o.Annotations[k]))
			}
		}
		if o.Type != node.ProxyDataplane {
			fmt.Fprintf(&b, "    dataplane.proxyType: %s\n", yamlString(string(o.Type)))
		}
		if dataplane != "" {
			fmt.Fprintf(&b, "    dataplane.resource: %s\n", yamlString(dataplane))
		}
	}
	b.WriteString(adsText)
	if o.Token != "" {
		fmt.Fprintf(&b, tokenText, yamlString("Bearer "+o.Token))
	}
	b.WriteString(sourcesText)
	server.write(&b)
	b.WriteString(bootstrapHTTP2)
	if o.AdminSocket != "" {
		fmt.Fprintf(&b, adminClusterText, policy.AdminCluster, policy.AdminCluster, yamlString(o.AdminSocket))
	}
	o.Probes.writeClusters(&b)
	o.writeListeners(&b)
	b.WriteString(restText)
	o.writeListenerLimits(&b)
	o.writeOverload(&b)
	if o.StatsTags {
		b.WriteString(statsTagsText)
	}
	if o.AdminSocket != "" {
		fmt.Fprintf(&b, adminText, yamlString(o.AdminSocket))
	}
	return b.Bytes(), nil
}

// These parts are the same for all proxies.
const (
	adsText = `dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services:
    - envoy_grpc:
        cluster_name: nearside-xds
        retry_policy:
          retry_back_off:
            base_interval: 0.25s
            max_interval: 2s
`
	tokenText = `      initial_metadata:
      - key: authorization
        value: %s
`
	sourcesText = `  cds_config:
    ads: {}
    resource_api_version: V3
    initial_fetch_timeout: 0s
  lds_config:
    ads: {}
    resource_api_version: V3
    initial_fetch_timeout: 0s
static_resources:
  clusters:
  - name: nearside-xds
`
	bootstrapHTTP2 = `    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            connection_keepalive:
              interval: 30s
              timeout: 10s
`
	adminClusterText = `  - name: %s
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: %s
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              pipe:
                path: %s
`
	// Envoy rejects regular expressions whose RE2 program is larger than this runtime value; the
	// default is 100. Envoy's limits of headers are 100 and 60 KiB: proxies add headers, so the second
	// proxy would reject requests and responses near the limit that the first one has accepted.
	restText = `layered_runtime:
  layers:
  - name: nearside
    static_layer:
      envoy.reloadable_features.max_request_headers_count: 200
      envoy.reloadable_features.max_request_headers_size_kb: 96
      envoy.reloadable_features.max_response_headers_count: 200
      envoy.reloadable_features.max_response_headers_size_kb: 96
      re2.max_program_size.error_level: 4294967295
      re2.max_program_size.warn_level: 4294967295
`
)

const adminText = `admin:
  address:
    pipe:
      path: %s
      mode: 432 # 0660
`

// checkSocketPath rejects a path that Envoy cannot use. Paths are never truncated.
func checkSocketPath(what, path string) error {
	switch {
	case !utf8.ValidString(path) || strings.ContainsRune(path, 0):
		return fmt.Errorf("path of the %s socket %q: not UTF-8 or with a NUL", what, path)
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("path of the %s socket %q: it must be absolute, as Envoy may run in another directory", what, path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("path of the %s socket %q: %d bytes, but a unix socket takes at most %d; "+
			"use a shorter directory, as /run/nearside", what, path, len(path), maxSocketPath)
	}
	return nil
}

// compactJSON returns a JSON object without insignificant space, with keys and numbers unchanged,
// or "".
func compactJSON(data []byte) (string, error) {
	if len(data) == 0 {
		return "", nil
	}
	if len(data) > maxBootstrapPart {
		return "", fmt.Errorf("dataplane: %d bytes, at most %d are allowed", len(data), maxBootstrapPart)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || object == nil || !utf8.Valid(data) {
		return "", fmt.Errorf("dataplane: want a JSON object in UTF-8 (%v)", err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return "", fmt.Errorf("dataplane: %w", err)
	}
	return b.String(), nil
}

func checkAnnotations(annotations map[string]string) error {
	size := 0
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(annotations[k]) {
			return fmt.Errorf("annotation %q: the key must not be empty, and key and value must be valid UTF-8", k)
		}
		size += len(k) + len(annotations[k])
	}
	if size > maxBootstrapPart {
		return fmt.Errorf("annotations: %d bytes, at most %d are allowed", size, maxBootstrapPart)
	}
	_, faults := resource.ParseReach("annotations", annotations)
	return faults.Err()
}

// yamlString quotes a string for YAML. All escapes of Go's ASCII form are also escapes of YAML's
// double-quoted style (YAML 1.2, 5.7), if the string is valid UTF-8.
func yamlString(s string) string { return strconv.QuoteToASCII(s) }
