package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
)

func bootstrapCommand(env *command.Env) *cobra.Command {
	var (
		o                                                bootstrap.Options
		dataplane, annotations, xds, admin, write, runAs string
		typ, tokenFile                                   string
		heap                                             uint64
		ready                                            bootstrap.Readiness
		vars                                             []string
	)
	cmd := &cobra.Command{
		Use:   "bootstrap --name DPP",
		Short: "Print the bootstrap config of an Envoy",
		Long: `Prints a bootstrap config for Envoy 1.36 to 1.40. The Envoy connects to the agent's xDS socket with
delta ADS, and its node ID is MESH.NAME. The command needs no running agent. The bootstrap contains
no secret except a token.

With --dataplane, the Envoy brings its Dataplane in the node metadata, and the agent stores it while
the Envoy is connected. Otherwise the Dataplane comes from the resource directory or the API.
--dataplane-var address=10.1.2.3 replaces {{ address }} in the file, so that one file suits all pods
of a Deployment.

--proxy-type egress or ingress is for the proxy of a ZoneEgress or ZoneIngress, which belongs to no
mesh. Its node ID is .egress.NAME or .ingress.NAME.

--annotations-file reads a file of the Kubernetes downward API (lines key="value") or a YAML mapping
of strings. kuma.io/reachable-backends and kuma.io/transparent-proxying-reachable-services restrict
what the proxy reaches, and are validated.

Envoy must be able to create its admin socket. --admin-socket "" disables the admin interface.

--token-file adds a token from "nearside token create", which the Envoy sends with each stream. The
bootstrap then contains a secret, and --write creates the file with mode 0600.

--xds-address is for an agent that listens on TCP, with TLS if --xds-ca is given. Envoy itself reads
the files of --xds-ca, --xds-cert, and --xds-key. The admin interface is then off unless
--admin-socket is given.

Standard error has the command line that starts the Envoy. --stats-tags adds the tags that Kuma's
dashboards need. With 1,000 services, they cost an Envoy about twelve seconds of CPU time at
startup.`,
		Example: `  nearside bootstrap --name web > web.yaml
  envoy -c web.yaml --disable-hot-restart
  nearside bootstrap --name web -m shop --dataplane web-dataplane.yaml \
    --admin-socket /run/envoy/web.sock --write web.yaml
  nearside bootstrap --name "$POD_NAME" --dataplane web.yaml \
    --dataplane-var name="$POD_NAME" --dataplane-var address="$POD_IP"
  nearside bootstrap --proxy-type egress --name egress-1 > egress.yaml
  nearside bootstrap --name web --token-file web.token \
    --xds-address agent.example.org:15443 --xds-ca ca.pem --write web.yaml`,
		Args: command.Args(0, 0, "no arguments; select the proxy with --name"),
	}
	command.MeshFlagWithoutAgent(env, cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.Name, "name", "", "name of the Dataplane, ZoneEgress, or ZoneIngress (required)")
	command.ProxyTypeFlag(cmd, &typ, "proxy type: ")
	fl.StringVar(&o.Cluster, "cluster", "", "node.cluster of the Envoy (default: the name)")
	fl.StringVar(&dataplane, "dataplane", "", "file with the Dataplane for the node metadata")
	fl.StringArrayVar(&vars, "dataplane-var", nil,
		"name=value that replaces {{ name }} in the file of --dataplane; repeatable")
	fl.StringVar(&annotations, "annotations-file", "", "file with annotations for the node metadata")
	fl.StringVar(&xds, "xds-socket", "", "xDS socket of the agent (default: xds.sock next to its API socket)")
	fl.StringVar(&tokenFile, "token-file", "", "file with the token that the Envoy sends")
	fl.StringVar(&o.XDSAddress.Address, "xds-address", "",
		"HOST:PORT of an agent that listens on TCP, instead of the xDS socket")
	fl.StringVar(&o.XDSAddress.CA, "xds-ca", "",
		"PEM file with the authorities of the agent's certificate; without it, the connection is plain text")
	fl.StringVar(&o.XDSAddress.Cert, "xds-cert", "", "PEM file with the client certificate of the Envoy")
	fl.StringVar(&o.XDSAddress.Key, "xds-key", "", "PEM file with the private key of --xds-cert")
	fl.StringVar(&admin, "admin-socket", "", "admin socket of the Envoy (default: envoy/UID/NODE-ID.sock next to the xDS "+
		"socket, in the directory that the agent creates for the user)")
	fl.StringVar(&runAs, "user", "", "user that runs the Envoy, by name or UID (default: the caller)")
	fl.StringVar(&o.Zone, "zone", "", "zone of the Envoy, as its locality (default: NEARSIDE_NODE_ZONE, else default)")
	fl.Uint64Var(&o.MaxConnections, "max-connections", bootstrap.DefaultMaxConnections,
		"maximum number of downstream connections; 0: no limit")
	fl.Uint64Var(&heap, "max-heap", 0, "heap size in MiB at which the Envoy refuses requests; 0: no limit")
	fl.Uint16Var(&ready.Port, "readiness-port", 0,
		"port at which GET /ready returns 200 once the Envoy has its config; 0: none")
	fl.StringVar(&ready.Address, "readiness-address", "0.0.0.0", "IP address of --readiness-port")
	fl.BoolVar(&o.StatsTags, "stats-tags", false, "add the statistics tags for Kuma's dashboards")
	fl.StringVar(&write, "write", "", "write to this file instead of standard output")
	_ = cmd.RegisterFlagCompletionFunc("name", command.CompleteNamesOf(env, "dataplanes"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Name == "" {
			return command.Usagef("--name is required: the Dataplane of the Envoy")
		}
		switch typ {
		case command.Dataplane:
			env.Mesh = command.FixedMesh(env)
			o.Mesh = env.Mesh
		case string(node.ProxyEgress), string(node.ProxyIngress):
			if cmd.Flags().Changed("mesh") || dataplane != "" {
				return command.Usagef("--mesh and --dataplane cannot be used with --proxy-type %s, which covers all meshes", typ)
			}
			o.Type = node.Type(typ)
		default:
			return command.Usagef("--proxy-type %q is invalid; use one of %s", typ, strings.Join(command.ProxyTypes(), ", "))
		}
		var err error
		switch {
		case o.XDSAddress.Address != "":
			if xds != "" {
				return command.Usagef("--xds-socket and --xds-address exclude each other")
			}
			for _, path := range []*string{&o.XDSAddress.CA, &o.XDSAddress.Cert, &o.XDSAddress.Key} {
				if *path != "" {
					if *path, err = filepath.Abs(*path); err != nil {
						return err
					}
				}
			}
		case o.XDSAddress != bootstrap.XDSAddress{}:
			return command.Usagef("--xds-ca, --xds-cert, and --xds-key require --xds-address")
		default:
			if xds == "" {
				xds = filepath.Join(filepath.Dir(env.Socket()), "xds.sock")
			}
			if o.XDSSocket, err = filepath.Abs(xds); err != nil {
				return err
			}
		}
		switch {
		// the directories of that host are unknown
		case !fl.Changed("admin-socket") && o.XDSAddress.Address != "":
		case !fl.Changed("admin-socket"):
			id := node.Ref{Type: o.Type, Mesh: o.Mesh, Name: o.Name}.NodeID()
			if o.AdminSocket, err = adminSocket(env, filepath.Dir(o.XDSSocket), id, runAs); err != nil {
				return err
			}
		case admin != "":
			if o.AdminSocket, err = filepath.Abs(admin); err != nil {
				return err
			}
		}
		if dataplane != "" {
			if o.Dataplane, err = dataplaneFromFile(env, &o, dataplane, vars); err != nil {
				return err
			}
		} else if len(vars) > 0 {
			return command.Usagef("--dataplane-var requires --dataplane")
		}
		if annotations != "" {
			if o.Annotations, err = readAnnotations(annotations); err != nil {
				return fmt.Errorf("--annotations-file %s: %w", annotations, err)
			}
			notes, err := metadata.ReachNotes(o.Annotations)
			if err != nil {
				return fmt.Errorf("--annotations-file %s: %w", annotations, err)
			}
			env.Warn(notes)
		}
		if tokenFile != "" {
			if o.Token, err = bootstrapToken(env, tokenFile,
				node.Ref{Type: o.Type, Mesh: o.Mesh, Name: o.Name}.NodeID()); err != nil {
				return fmt.Errorf("--token-file %s: %w", tokenFile, err)
			}
			if o.XDSAddress.Address != "" && o.XDSAddress.CA == "" {
				env.Warn(
					[]string{"without --xds-ca, the token is sent in clear text: anyone who reads it on the network can impersonate " +
						"this proxy"})
			}
		}
		if !fl.Changed("zone") {
			o.Zone = cmp.Or(env.Getenv(config.EnvName("node.zone")), "default")
		}
		if heap > maxHeap {
			return command.Usagef("--max-heap %d is invalid; at most %d is allowed", heap, uint64(maxHeap))
		}
		o.MaxHeapBytes = heap << 20
		switch {
		case ready.Port > 0:
			o.Readiness = ready
		case fl.Changed("readiness-address"):
			return command.Usagef("--readiness-address requires --readiness-port")
		}
		if dataplane == "" && typ == command.Dataplane && o.XDSAddress.Address == "" {
			env.Warn(unknownDataplane(cmd.Context(), env, o.Name))
		}
		b, err := bootstrap.Render(o)
		if err != nil {
			return err
		}
		if write == "" {
			if o.Token != "" {
				text.Println(env.Stderr, "hint: the bootstrap contains the token, which is a secret; store it in a file that only "+
					"the Envoy's user can read (--write FILE creates one)")
			}
			if _, err = text.Verbatim(env.Stdout).Write(b); err == nil {
				text.Printf(env.Stderr, "start the Envoy with: %s\n", startLine("FILE"))
			}
			return err
		}
		if o.Token != "" {
			err = command.WriteSecret(write, b)
		} else {
			// #nosec G306 -- Envoy reads it under another user; it holds no secret
			err = os.WriteFile(write, b, 0o644)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--write %s: the folder does not exist; create it with mkdir -p %s", write, filepath.Dir(write))
		} else if err != nil {
			return fmt.Errorf("--write %s: %w", write, command.Reason(err))
		}
		text.Printf(env.Stderr, "wrote %s; start the Envoy with: %s\n", write, startLine(write))
		if o.Token != "" {
			text.Println(env.Stderr,
				"hint: the file contains the token and has mode 0600; if the Envoy runs as another user, change its owner")
		}
		return nil
	}
	return cmd
}

// unknownDataplane warns if the agent has no Dataplane with this name, because the Envoy would get
// no config. It returns nothing if no agent responds.
func unknownDataplane(ctx context.Context, env *command.Env, name string) []string {
	names, err := client.New(env.Socket(), command.CompletionTime).Names(ctx, "dataplanes", env.Mesh, "")
	if err != nil || slices.Contains(names, name) {
		return nil
	}
	warning := fmt.Sprintf("mesh %s has no Dataplane %s yet; until it exists, the Envoy gets no config", env.Mesh, name)
	if near := strict.Nearest(name, names); near != "" {
		warning += fmt.Sprintf("; did you mean %s?", near)
	}
	return []string{warning}
}

// maxHeap is the largest --max-heap, in MiB.
const maxHeap = 1 << 24

// startLine returns the command line that starts an Envoy.
func startLine(file string) string {
	if strings.Trim(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@") != "" {
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	return "envoy -c " + file + " " + strings.Join(bootstrap.Flags(bootstrap.DefaultConcurrency), " ")
}

// bootstrapToken reads the token for the proxy with a node ID. Only the agent verifies its
// signature, but a token for another proxy is an error here.
func bootstrapToken(env *command.Env, file, nodeID string) (string, error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", command.Reason(err)
	}
	if mode := st.Mode().Perm(); st.Mode().IsRegular() && mode&0o007 != 0 {
		return "", fmt.Errorf("every user can access it (mode %04o): run chmod o= %s; "+
			"if another user may have read it, revoke the token and create a new one", mode, file)
	}
	content, err := command.ReadToken(env, file)
	if err != nil {
		return "", err
	}
	c, err := token.Decode(content)
	if err != nil {
		return "", err
	}
	if c.Audience != token.AudienceXDS {
		return "", fmt.Errorf("the token is for %q, not for Envoys: create one with nearside token create --name %s",
			c.Audience, nodeID)
	}
	if ok, err := path.Match(c.NodeIDs(), nodeID); err != nil || !ok {
		return "", fmt.Errorf("the token is for the node IDs %q, not for %q: create another one with nearside token create",
			c.NodeIDs(), nodeID)
	}
	if !c.Expires.After(time.Now()) {
		return "", fmt.Errorf("the token expired at %s: create another one with nearside token create",
			text.Time(c.Expires))
	}
	return content, nil
}

// readAnnotations reads annotations as the downward API of Kubernetes writes them, one key="value"
// per line with Go escapes, or as a YAML mapping.
func readAnnotations(path string) (map[string]string, error) {
	data, err := command.ReadFile(path)
	if err != nil {
		return nil, command.Reason(err)
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

// mappedAnnotations reads annotations from a YAML mapping.
func mappedAnnotations(path string, data []byte) (map[string]string, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return nil, fmt.Errorf("neither lines key=\"value\" nor a YAML mapping of strings: %w", err)
	}
	out := make(map[string]string, len(nodes))
	var faults resource.Faults
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[key]
		var content string
		if err := node.Decode(&content); err != nil {
			faults = append(faults, resource.Fault{File: path, Line: node.Line, Field: fmt.Sprintf("annotations[%q]", key),
				Reason: "the value is not a string: as in Kubernetes, write structured values as a string, " +
					"in a YAML block that starts with |"})
			continue
		}
		out[key] = content
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return out, nil
}
