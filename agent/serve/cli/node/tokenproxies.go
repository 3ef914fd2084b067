package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// askTime bounds the time that a command asks a running agent for hints.
const askTime = 2 * time.Second

// agentOf returns a client of the agent of a valid config, unless the command line names another
// socket.
func agentOf(env *command.Env, conf *command.ConfigFlags) *client.Client {
	quiet := *env
	quiet.Stderr = io.Discard
	cfg, _, err := conf.Load(&quiet)
	if err != nil || env.NamesSocket() {
		return env.Quick(askTime)
	}
	return client.New(cfg.API.Socket.Path, askTime)
}

// unknownProxies returns warnings about a token for a mesh or proxies that the running agent does
// not have. It returns none if no agent answers.
func unknownProxies(ctx context.Context, agent *client.Client, c *token.Claims) []string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	kind, name := node.ProxyDataplane.Kind(), c.Name
	for _, t := range []node.Type{node.ProxyEgress, node.ProxyIngress} {
		if zone, ok := strings.CutPrefix(c.Name, string(t)+"."); ok && c.Mesh == "" {
			kind, name = t.Kind(), zone
		}
	}
	if c.Mesh != "" {
		meshes, err := agent.Names(ctx, "Mesh", "", c.Mesh)
		if err == nil && !slices.Contains(meshes, c.Mesh) {
			return []string{fmt.Sprintf("the agent has no mesh %q, so no Envoy can use the token until the mesh exists; "+
				"check --mesh", c.Mesh)}
		}
	}
	literal, _, _ := strings.Cut(name, "*")
	names, err := agent.Names(ctx, kind, c.Mesh, literal)
	if err != nil || len(c.Services) > 0 || slices.ContainsFunc(names, func(n string) bool {
		return access.Match([]string{name}, n)
	}) {
		return nil // an Envoy with --service may bring its Dataplane
	}
	return []string{fmt.Sprintf("the agent has no %s that matches --name %q, so no Envoy can use the token until one "+
		"exists; nearside get %s lists them", kind, name, strings.ToLower(kind))}
}
