package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/offline"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
)

func (a *app) bootstrapCommand() *cobra.Command {
	var (
		o                                         offline.BootstrapOptions
		dataplane, annotations, xds, admin, write string
		typ                                       string
	)
	cmd := &cobra.Command{
		Use:   "bootstrap --name DPP",
		Short: "Print the bootstrap of an Envoy",
		Long: `Prints a bootstrap for Envoy 1.29 to 1.37: it takes its config by delta ADS over the agent's xDS socket under the
node id MESH.NAME, which stays the same over restarts. It needs no running agent and holds no secret.

With --dataplane, the Envoy brings its Dataplane in its node metadata, and the agent has it as long as the Envoy is
connected; without, the Dataplane comes from the resource directory or the API.
With --proxy-type egress or ingress it is for the proxy of a ZoneEgress or ZoneIngress of that name, which has no mesh; its
node id is .egress.NAME or .ingress.NAME.
--annotations-file takes the downward API of Kubernetes (lines key="value") or a YAML mapping of strings. Of these
kuma.io/reachable-backends and kuma.io/transparent-proxying-reachable-services say what the proxy reaches, and are checked.
Envoy must be able to create its admin socket; --admin-socket "" leaves the admin interface out.`,
		Example: `  nearside bootstrap --name web > web.yaml && envoy -c web.yaml
  nearside bootstrap --name web -m shop --dataplane web-dataplane.yaml --admin-socket /run/envoy/web.sock --write web.yaml
  nearside bootstrap --proxy-type egress --name egress-1 > egress.yaml && envoy -c egress.yaml`,
		Args: args(0, 0, "no arguments; name the proxy with --name"),
	}
	a.meshFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.Name, "name", "", "name of the Dataplane, ZoneEgress or ZoneIngress (required)")
	fl.StringVar(&typ, "proxy-type", proxyDataplane, "type of the proxy: "+strings.Join(proxyTypes(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("proxy-type", cobra.FixedCompletions(proxyTypes(), cobra.ShellCompDirectiveNoFileComp))
	fl.StringVar(&o.Cluster, "cluster", "", "node.cluster of the Envoy (default: the name)")
	fl.StringVar(&dataplane, "dataplane", "", "file with the Dataplane that the Envoy brings")
	fl.StringVar(&annotations, "annotations-file", "", "file with annotations for the node metadata")
	fl.StringVar(&xds, "xds-socket", "", "xDS socket of the agent (default: xds.sock beside its API socket)")
	fl.StringVar(&admin, "admin-socket", "", "admin socket of the Envoy (default: envoy/NODE-ID.sock beside the xDS socket, where the agent lets Envoys make theirs)")
	fl.StringVar(&write, "write", "", "write to this file instead of standard output")
	_ = cmd.RegisterFlagCompletionFunc("name", a.completeNamesOf("dataplanes"))
	cmd.RunE = func(*cobra.Command, []string) error {
		if o.Name == "" {
			return usagef("--name is missing: name the Dataplane of the Envoy")
		}
		switch typ {
		case proxyDataplane:
			o.Mesh = a.mesh
		case string(offline.ProxyEgress), string(offline.ProxyIngress):
			if cmd.Flags().Changed("mesh") || dataplane != "" {
				return usagef("--mesh and --dataplane do not go with --proxy-type %s, which is for all meshes", typ)
			}
			o.Type = offline.ProxyType(typ)
		default:
			return usagef("--proxy-type %q is not possible; one of %s", typ, strings.Join(proxyTypes(), ", "))
		}
		if xds == "" {
			xds = filepath.Join(filepath.Dir(client.FindSocket(a.socket, a.getenv, os.Geteuid())), "xds.sock")
		}
		var err error
		if o.XDSSocket, err = filepath.Abs(xds); err != nil {
			return err
		}
		switch {
		case !fl.Changed("admin-socket"):
			o.AdminSocket = filepath.Join(filepath.Dir(o.XDSSocket), "envoy", offline.ProxyRef{Type: o.Type, Mesh: o.Mesh, Name: o.Name}.NodeID()+".sock")
		case admin != "":
			if o.AdminSocket, err = filepath.Abs(admin); err != nil {
				return err
			}
		}
		if dataplane != "" {
			off, err := a.offline(&fileFlags{flag: "--dataplane", paths: []string{dataplane}})
			if err != nil {
				return err
			}
			if o.Dataplane, err = off.Dataplane(o.Mesh, o.Name); err != nil {
				return fmt.Errorf("--dataplane %s: %w", dataplane, err)
			}
		}
		if annotations != "" {
			if o.Annotations, err = readAnnotations(annotations); err != nil {
				return fmt.Errorf("--annotations-file %s: %w", annotations, err)
			}
			notes, err := metadata.ReachNotes(o.Annotations)
			if err != nil {
				return fmt.Errorf("--annotations-file %s: %w", annotations, err)
			}
			a.warn(notes)
		}
		b, err := offline.Bootstrap(o)
		if err != nil {
			return err
		}
		if write == "" {
			_, err = a.stdout.Write(b)
			return err
		}
		if err := os.WriteFile(write, b, 0o644); err != nil { // #nosec G306 -- Envoy reads it under its own user; it holds no secret
			return err
		}
		fmt.Fprintf(a.stderr, "wrote %s; start the proxy with: envoy -c %s\n", write, write)
		return nil
	}
	return cmd
}

// proxyDataplane is the proxy type of a Dataplane.
const proxyDataplane = "dataplane"

// proxyTypes are the values of --proxy-type.
func proxyTypes() []string {
	return []string{proxyDataplane, string(offline.ProxyEgress), string(offline.ProxyIngress)}
}

// readAnnotations reads annotations as the downward API of Kubernetes writes them, one key="value" to a line with Go's
// escapes, or else as a YAML mapping.
func readAnnotations(path string) (map[string]string, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, reason(err)
	}
	out := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		value, err := strconv.Unquote(strings.TrimSpace(quoted))
		if ok && err == nil {
			out[strings.TrimSpace(key)] = value
			continue
		}
		if len(out) > 0 {
			return nil, fmt.Errorf("line %d is not key=\"value\"", i+1)
		}
		return mappedAnnotations(path, data)
	}
	return out, nil
}

// mappedAnnotations reads them from a YAML mapping.
func mappedAnnotations(path string, data []byte) (map[string]string, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return nil, fmt.Errorf("neither lines key=\"value\" nor a YAML mapping of strings: %w", err)
	}
	out := make(map[string]string, len(nodes))
	var faults offline.Faults
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[key]
		var text string
		if err := node.Decode(&text); err != nil {
			faults = append(faults, offline.Fault{File: path, Line: node.Line, Field: fmt.Sprintf("annotations[%q]", key),
				Reason: "it is not a text: as in Kubernetes, write its YAML as one text, behind a | and on lines of its own"})
			continue
		}
		out[key] = text
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return out, nil
}
