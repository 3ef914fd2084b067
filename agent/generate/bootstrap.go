package generate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxSocketPath is the longest path of a unix socket in bytes (sun_path of unix(7) less the final NUL).
const maxSocketPath = 107

// xdsCluster is the cluster of the bootstrap that leads to the agent.
const xdsCluster = "nearside-xds"

// StaticClusters returns the names of the clusters that the bootstrap has.
func StaticClusters() []string { return []string{xdsCluster} }

// maxBootstrapPart bounds the Dataplane and the annotations of a bootstrap in bytes, so that a request fits RecvBytes.
const maxBootstrapPart = 1 << 20

// BootstrapOptions says for which proxy a bootstrap is made.
type BootstrapOptions struct {
	Type        node.Type         // at the border of a zone there is neither mesh nor Dataplane
	Mesh, Name  string            // of the resource; see ProxyRef.NodeID
	Cluster     string            // node.cluster: the service of the proxy; the name when empty
	XDSSocket   string            // absolute path of the agent's xDS socket, at most 107 bytes
	AdminSocket string            // absolute path of Envoy's admin socket, at most 107 bytes; no admin when empty
	Dataplane   []byte            // the Dataplane as JSON, which the agent then takes from the node metadata; none when empty
	Annotations map[string]string // for the node metadata
}

// Bootstrap returns the bootstrap of an Envoy 1.29 to 1.37 as YAML: delta ADS over the unix socket of the agent, a
// stable node id, a raised RE2 limit and the admin interface on a unix socket. It holds no secret. The same options
// give the same bytes. Faults are reported all at once.
func Bootstrap(o BootstrapOptions) ([]byte, error) {
	var faults []error
	id := node.Ref{Type: o.Type, Mesh: o.Mesh, Name: o.Name}.NodeID()
	if strings.Contains(o.Mesh, ".") {
		faults = append(faults, fmt.Errorf("mesh %q: a mesh name has no dot, since the node id is split at the first", o.Mesh))
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
	if o.XDSSocket == "" {
		faults = append(faults, errors.New("path of the xDS socket: required"))
	} else {
		faults = append(faults, checkSocketPath("xDS", o.XDSSocket))
	}
	if o.AdminSocket != "" {
		faults = append(faults, checkSocketPath("admin", o.AdminSocket))
		if o.AdminSocket == o.XDSSocket {
			faults = append(faults, fmt.Errorf("path of the admin socket %q: it is that of the xDS socket", o.AdminSocket))
		}
	}
	dataplane, err := compactJSON(o.Dataplane)
	faults = append(faults, err, checkAnnotations(o.Annotations))
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "node:\n  id: %s\n  cluster: %s\n", yamlString(id), yamlString(cluster))
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
	fmt.Fprintf(&b, bootstrapBody, yamlString(o.XDSSocket))
	if o.AdminSocket != "" {
		fmt.Fprintf(&b, bootstrapAdmin, yamlString(o.AdminSocket))
	}
	return b.Bytes(), nil
}

// bootstrapBody is the part that is the same for all proxies but for the path of the xDS socket. Envoy refuses regular
// expressions whose RE2 program is larger than the runtime says, which is 100 unless it is raised.
const bootstrapBody = `dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services:
    - envoy_grpc:
        cluster_name: nearside-xds
  cds_config:
    ads: {}
    resource_api_version: V3
  lds_config:
    ads: {}
    resource_api_version: V3
static_resources:
  clusters:
  - name: nearside-xds
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: nearside-xds
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              pipe:
                path: %s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            connection_keepalive:
              interval: 30s
              timeout: 10s
layered_runtime:
  layers:
  - name: nearside
    static_layer:
      re2.max_program_size.error_level: 4294967295
      re2.max_program_size.warn_level: 4294967295
`

const bootstrapAdmin = `admin:
  address:
    pipe:
      path: %s
      mode: 432 # 0660
`

// checkSocketPath refuses a path that Envoy could not use; it is never cut.
func checkSocketPath(what, path string) error {
	switch {
	case !utf8.ValidString(path) || strings.ContainsRune(path, 0):
		return fmt.Errorf("path of the %s socket %q: not UTF-8 or with a NUL", what, path)
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("path of the %s socket %q: it must be absolute, as Envoy may run in another directory", what, path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("path of the %s socket %q: %d bytes, but a unix socket takes at most %d; use a shorter directory, as /run/nearside", what, path, len(path), maxSocketPath)
	}
	return nil
}

// compactJSON returns a JSON object without needless space, keys and numbers as they were; "" for nothing.
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
			return fmt.Errorf("annotation %q: want a key, and key and value in UTF-8", k)
		}
		size += len(k) + len(annotations[k])
	}
	if size > maxBootstrapPart {
		return fmt.Errorf("annotations: %d bytes, at most %d are allowed", size, maxBootstrapPart)
	}
	_, faults := resource.ParseReach("annotations", annotations)
	return faults.Err()
}

// yamlString quotes a string for YAML. The escapes of Go's ASCII form are all escapes of YAML's double-quoted style
// (YAML 1.2, 5.7), given that the string is valid UTF-8.
func yamlString(s string) string { return strconv.QuoteToASCII(s) }
