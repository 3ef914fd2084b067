package command

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// Variables of the flags that select an agent.
const (
	envSocket = "NEARSIDE_SOCKET"
	envServer = "NEARSIDE_SERVER"
	envToken  = "NEARSIDE_TOKEN_FILE"
	envCA     = "NEARSIDE_CA"
)

// AgentFlags are --socket, --server, --token-file, and --ca.
type AgentFlags struct {
	Socket                string
	server, tokenFile, ca string
}

// Add adds the flags to the root command.
func (f *AgentFlags) Add(root *cobra.Command) {
	fl := root.PersistentFlags()
	fl.StringVar(&f.Socket, "socket", "",
		"Unix socket of the agent (default: "+envSocket+", else "+client.DefaultSocket+")")
	fl.StringVar(&f.server, "server", "",
		"URL of an agent's API over TCP, instead of the socket (default: "+envServer+")")
	fl.StringVar(&f.tokenFile, "token-file", "", "file with the API token for --server (default: "+envToken+")")
	fl.StringVar(&f.ca, "ca", "", "PEM file with the authorities of the server's certificate (default: "+envCA+
		", else those of this machine)")
}

// Check validates the combination of flags. local is true for a command that works on files of this
// node; it ignores the variables.
func (f *AgentFlags) Check(cmd *cobra.Command, local bool) error {
	given := func(name string) bool { return cmd.Root().PersistentFlags().Lookup(name).Changed }
	for _, name := range []string{"socket", "server", "token-file", "ca"} {
		if given(name) && cmd.Root().PersistentFlags().Lookup(name).Value.String() == "" {
			return Usagef("--%s is empty; give a value", name)
		}
	}
	switch {
	case given("socket") && given("server"):
		return Usagef("--socket and --server exclude each other; give one of them")
	case local && given("server"):
		return Usagef("--server cannot be used with %s, which works on files of this node", cmd.CommandPath())
	}
	return nil
}

// Server returns the server of the flags and variables, or nil for a socket.
func (env *Env) Server() (*client.Server, error) {
	f := &env.Agent
	url := f.server
	if url == "" && f.Socket == "" {
		url = env.Getenv(envServer)
		if url != "" && env.Getenv(envSocket) != "" {
			return nil, Usagef("%s and %s are both set; unset one of them, or give --socket or --server", envSocket, envServer)
		}
	}
	if url == "" {
		if f.tokenFile != "" || f.ca != "" {
			return nil, Usagef("--token-file and --ca require --server")
		}
		return nil, nil
	}
	u, err := client.ParseServer(url)
	if err != nil {
		return nil, Usagef("--server: %v", err)
	}
	s := &client.Server{URL: u}
	if path := cmp.Or(f.tokenFile, env.Getenv(envToken)); path != "" {
		if s.Token, err = apiToken(path); err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", path, Reason(err))
		}
	}
	if path := cmp.Or(f.ca, env.Getenv(envCA)); path != "" {
		if s.CA, err = authorities(path); err != nil {
			return nil, fmt.Errorf("--ca %s: %w", path, Reason(err))
		}
	}
	return s, nil
}

// apiToken reads a token, which is one word.
func apiToken(path string) (string, error) {
	data, err := ReadFile(path)
	token := strings.TrimSpace(string(data))
	if err == nil && (token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = Exit(ExitInvalid, errors.New("the file does not contain exactly one token; "+
			"nearside token create --api creates one"))
	}
	return token, err
}

func authorities(path string) (*x509.CertPool, error) {
	pem, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, Exit(ExitInvalid, errors.New("the file has no certificate in PEM"))
	}
	return pool, nil
}

// Client returns a client of the agent, which connects on its first call.
func (env *Env) Client() *client.Client { return env.Quick(0) }

// Quick returns a client with a timeout, for completion and probes.
func (env *Env) Quick(timeout time.Duration) *client.Client {
	s, err := env.Server()
	switch {
	case err != nil:
		return client.Broken(err)
	case s != nil:
		return client.NewServer(*s, timeout)
	}
	return client.New(env.Socket(), timeout)
}

// Socket returns the path of the socket of the agent on this node.
func (env *Env) Socket() string { return client.FindSocket(env.Agent.Socket, env.Getenv, os.Geteuid()) }

// NamesSocket reports whether a flag or a variable gives the socket.
func (env *Env) NamesSocket() bool { return env.Agent.Socket != "" || env.Getenv(envSocket) != "" }

// OnNode returns an error if the agent is reached over TCP: what reads files or sockets of the
// agent's node.
func (env *Env) OnNode(what string) error {
	if s, err := env.Server(); err != nil || s == nil {
		return err
	}
	return Usagef("%s works only on the node of the agent; run the command there, without --server and %s",
		what, envServer)
}

// Arguments returns the flags that select the same agent for another command line.
func (env *Env) Arguments() []string {
	if s, err := env.Server(); err != nil || s == nil {
		return []string{"--socket", env.Socket()}
	}
	out := []string{"--server", cmp.Or(env.Agent.server, env.Getenv(envServer))}
	if env.Agent.tokenFile != "" {
		out = append(out, "--token-file", env.Agent.tokenFile)
	}
	if env.Agent.ca != "" {
		out = append(out, "--ca", env.Agent.ca)
	}
	return out
}
