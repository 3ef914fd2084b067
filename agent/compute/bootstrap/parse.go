package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// File is the part of a bootstrap that the agent needs to know.
type File struct {
	Node *core.Node // with its id and metadata
	// XDSSocket is the path of the socket of the xDS server, or XDSAddress is its TCP address.
	XDSSocket  string
	XDSAddress XDSAddress
	// Authorization is the metadata "authorization" that the Envoy sends, such as "Bearer TOKEN", or
	// "".
	Authorization string
	AdminSocket   string // path of the admin socket; "" for none, or for an address
}

// Parse reads a bootstrap of an Envoy, or of a gRPC library, in YAML or JSON. The fields may be
// written in snake case or camel case, as for Envoy. It fails if the file has no ADS server.
func Parse(data []byte) (*File, error) {
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	t := branch{tree}
	out := &File{AdminSocket: t.text("admin", "address", "pipe", "path")}
	if t.at("node").value == nil {
		return nil, errors.New("the field node is missing; nearside bootstrap prints a bootstrap")
	}
	text, err := json.Marshal(t.at("node").value)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	out.Node = &core.Node{}
	if err := protojson.Unmarshal(text, out.Node); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if uri := t.at("xds_servers").first().text("server_uri"); uri != "" { // of a gRPC library
		return out, out.setTarget(uri)
	}
	service := t.at("dynamic_resources", "ads_config", "grpc_services").first()
	for _, m := range service.at("initial_metadata").list() {
		if strings.EqualFold(m.text("key"), "authorization") {
			out.Authorization = m.text("value")
		}
	}
	if uri := service.text("google_grpc", "target_uri"); uri != "" {
		return out, out.setTarget(uri)
	}
	name := service.text("envoy_grpc", "cluster_name")
	if name == "" {
		return nil, errors.New("dynamic_resources.ads_config.grpc_services is missing: the Envoy has no ADS server; " +
			"nearside bootstrap prints a bootstrap")
	}
	for _, c := range t.at("static_resources", "clusters").list() {
		if c.text("name") == name {
			return out, out.setCluster(name, c)
		}
	}
	return nil, fmt.Errorf("the ADS server is the cluster %q, which static_resources.clusters does not have", name)
}

// setCluster sets the server from the endpoint of a cluster.
func (f *File) setCluster(name string, c branch) error {
	address := c.at("load_assignment", "endpoints").first().at("lb_endpoints").first().at("endpoint", "address")
	if f.XDSSocket = address.text("pipe", "path"); f.XDSSocket != "" {
		return nil
	}
	host, port := address.text("socket_address", "address"), address.text("socket_address", "port_value")
	if host == "" || port == "" {
		return fmt.Errorf("the cluster %q of the ADS server has neither a pipe nor a socket address", name)
	}
	f.XDSAddress.Address = net.JoinHostPort(host, port)
	tls := c.at("transport_socket", "typed_config", "common_tls_context")
	f.XDSAddress.CA = tls.text("validation_context", "trusted_ca", "filename")
	pair := tls.at("tls_certificates").first()
	f.XDSAddress.Cert = pair.text("certificate_chain", "filename")
	f.XDSAddress.Key = pair.text("private_key", "filename")
	return nil
}

// setTarget sets the server from a target of gRPC.
func (f *File) setTarget(uri string) error {
	if path, ok := strings.CutPrefix(uri, "unix:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			path = rest
		}
		f.XDSSocket = path
		return nil
	}
	f.XDSAddress.Address = uri[strings.LastIndexByte(uri, '/')+1:]
	return nil
}

// branch is a part of a decoded document.
type branch struct{ value any }

// at returns the part below the fields, in snake case, or an empty one.
func (b branch) at(fields ...string) branch {
	for _, field := range fields {
		m, _ := b.value.(map[string]any)
		v, ok := m[field]
		if !ok {
			v = m[camelCase(field)]
		}
		b = branch{v}
	}
	return b
}

// list returns the items of a list.
func (b branch) list() (out []branch) {
	items, _ := b.value.([]any)
	for _, v := range items {
		out = append(out, branch{v})
	}
	return out
}

// first returns the first item of a list, or an empty part.
func (b branch) first() branch {
	if list := b.list(); len(list) > 0 {
		return list[0]
	}
	return branch{}
}

// text returns a string or number below the fields, or "".
func (b branch) text(fields ...string) string {
	switch v := b.at(fields...).value.(type) {
	case string:
		return v
	case int:
		return fmt.Sprint(v)
	}
	return ""
}

// camelCase returns the JSON name of a field in snake case.
func camelCase(field string) string {
	words := strings.Split(field, "_")
	for i := range words[1:] {
		if w := words[i+1]; w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
