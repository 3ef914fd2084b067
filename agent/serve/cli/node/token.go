package node

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// defaultValidity is the default of --valid-for.
const defaultValidity = 720 * time.Hour

func tokenCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "token",
		Short: "Create, inspect, and revoke tokens of Envoys and API clients",
		Long: `A token identifies an Envoy or an API client whose Unix user does not. Keys below paths.state sign
the tokens, and the agent verifies them locally. These commands work on the key files, as root or as
the agent's user. A running agent notices changes within a second.`,
		Example: "  nearside token create --name 'web-*'\n  nearside token keys\n  nearside token revoke -f web.token",
	}, tokenCreateCommand(env), tokenInspectCommand(env), tokenKeysCommand(env), tokenRotateCommand(env),
		tokenRevokeCommand(env), tokenRevokedCommand(env))
}

// openKeys returns the signing keys below the state directory of a config. write is set if the
// caller changes them.
func openKeys(env *command.Env, conf *command.ConfigFlags, write bool) (*token.Keys, error) {
	cfg, _, err := conf.Load(env)
	if err == nil && write {
		err = writable(cfg, statedir.Revoked)
	}
	if err != nil {
		return nil, err
	}
	return token.Open(filepath.Join(cfg.Paths.State, token.Dir), slog.New(slog.DiscardHandler), time.Now), nil
}

// notPermitted adds an exit code and a hint to a permission error.
func notPermitted(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return command.Exit(command.ExitPermission, command.Hinted(err,
			"run the command as root or as the agent's user; select another agent with --config or --set paths.state=DIR"))
	}
	return err
}

// shownToken is a token in the output of commands.
type shownToken struct {
	Token    string    `json:"token,omitempty"`
	ID       string    `json:"id"`
	Subject  string    `json:"subject"`
	Audience string    `json:"audience"`
	NodeIDs  string    `json:"nodeIds,omitempty"`
	Mesh     string    `json:"mesh,omitempty"`
	Name     string    `json:"name,omitempty"`
	Services []string  `json:"services,omitempty"`
	KeyID    string    `json:"kid"`
	Issued   time.Time `json:"issued"`
	Expires  time.Time `json:"expires"`
}

func showToken(c *token.Claims) shownToken {
	return shownToken{
		ID: ascii(c.ID), Subject: ascii(c.Subject), Audience: ascii(c.Audience), NodeIDs: ascii(c.NodeIDs()),
		Mesh: ascii(c.Mesh), Name: ascii(c.Name),
		Services: text.Each(c.Services, ascii), KeyID: ascii(c.KeyID), Issued: c.Issued, Expires: c.Expires,
	}
}

// ascii quotes text that no valid token contains. The claims of an unverified token are untrusted.
func ascii(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

func tokenCreateCommand(env *command.Env) *cobra.Command {
	var (
		conf       command.ConfigFlags
		c          token.Claims
		typ, write string
		api        bool
		validFor   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create --name GLOB",
		Short: "Create a token",
		Long: `Prints a token, or with -o json also its claims. A token is a secret: anyone who has it has the
identity in it.

A token for Envoys names the proxies that they may be: those with a node ID MESH.NAME where NAME
matches the glob --name. "*" matches any number of characters. --service lists the values of
kuma.io/service that a Dataplane in the Envoy's node metadata may claim; without it, the Envoy may
not bring a Dataplane. --proxy-type egress or ingress is for the proxies of ZoneEgresses and
ZoneIngresses, which belong to no mesh.

With --api, the token is for a client of the HTTP API, and the roles of --subject define its
permissions.

The first token also creates the first signing key.`,
		Example: `  nearside token create --name 'web-*' --valid-for 720h --write web.token
  nearside token create -m shop --name cart --service cart -o json
  nearside token create --api --subject grafana --valid-for 8760h`,
		Args: command.Args(0, 0, "no arguments; select the proxies with --name"),
	}
	command.MeshFlagWithoutAgent(env, cmd)
	conf.Add(cmd)
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	fl := cmd.Flags()
	fl.StringVar(&c.Name, "name", "",
		"glob for names of Dataplanes, ZoneEgresses, or ZoneIngresses (required without --api)")
	command.ProxyTypeFlag(cmd, &typ, "proxy type: ")
	fl.StringArrayVar(&c.Services, "service", nil,
		"glob for kuma.io/service values that a Dataplane in node metadata may claim; repeatable")
	fl.StringVar(&c.Subject, "subject", "",
		"owner of the token, for logs and roles (default: MESH.NAME; required with --api)")
	fl.BoolVar(&api, "api", false, "create a token for a client of the HTTP API")
	fl.DurationVar(&validFor, "valid-for", defaultValidity, "validity of the token, at most 10 years")
	fl.StringVar(&write, "write", "", "write the token to this file with mode 0600, instead of to standard output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		zone := typ == string(node.ProxyEgress) || typ == string(node.ProxyIngress)
		switch {
		case api && (c.Name != "" || len(c.Services) > 0 || fl.Changed("mesh") || fl.Changed("proxy-type")):
			return command.Usagef("--name, --service, --mesh, and --proxy-type cannot be used with --api")
		case api && c.Subject == "":
			return command.Usagef("--subject is required: the owner of the token")
		case !api && c.Name == "":
			return command.Usagef("--name is required: the Dataplanes of the Envoys, such as 'web-*'")
		case !zone && typ != command.Dataplane:
			return command.Usagef("--proxy-type %q is invalid; use one of %s", typ, strings.Join(command.ProxyTypes(), ", "))
		case zone && (fl.Changed("mesh") || len(c.Services) > 0):
			return command.Usagef("--mesh and --service cannot be used with --proxy-type %s, which covers all meshes", typ)
		case validFor <= 0 || validFor > token.MaxValidity:
			return command.Usagef("--valid-for %s is invalid; give a positive duration of up to %s (10 years)",
				validFor, token.MaxValidity)
		}
		c.Audience = token.AudienceAPI
		if !api {
			c.Audience, c.Mesh = token.AudienceXDS, command.FixedMesh(env)
			if zone {
				c.Mesh, c.Name = "", typ+"."+c.Name
			}
			c.Subject = cmp.Or(c.Subject, strings.TrimPrefix(c.NodeIDs(), "."))
		}
		if err := c.Check(); err != nil {
			return command.Exit(command.ExitUsage, err)
		}
		keys, err := openKeys(env, &conf, true)
		if err != nil {
			return err
		}
		if !api {
			env.Warn(unknownProxies(cmd.Context(), agentOf(env, &conf), &c))
		}
		content, err := keys.Create(c, validFor)
		if err != nil {
			return notPermitted(err)
		}
		warnKeys(env, keys.Err())
		created, err := token.Decode(content)
		if err != nil {
			return err
		}
		shown := showToken(&created)
		if write != "" {
			if err := command.WriteSecret(write, []byte(content+"\n")); err != nil {
				return err
			}
			text.Printf(env.Stderr, "wrote %s; the token is valid until %s\n", write, text.Time(created.Expires))
		} else {
			shown.Token = content
		}
		if ok, err := command.Printed(env, *format, shown); ok {
			return err
		}
		if write == "" {
			text.Println(env.Stdout, content)
		}
		return nil
	}
	return cmd
}

// warnKeys prints errors of key files as warnings.
func warnKeys(env *command.Env, err error) {
	if err != nil {
		env.Warn(strings.Split(err.Error(), "\n"))
	}
}

// verified is the document of "token inspect -o json".
type verified struct {
	Valid  bool         `json:"valid"`
	Reason token.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"`
	shownToken
}

func tokenInspectCommand(env *command.Env) *cobra.Command {
	var conf command.ConfigFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Show the claims of a token, and whether it is valid",
		Long: `Decodes the token in a file, or with - from standard input, and verifies it as the agent does.

The exit code is 2 if the token is invalid. Its claims are shown nevertheless, and may be forged.`,
		Example: "  nearside token inspect web.token\n  nearside token create --name web | nearside token inspect - -o json",
		Args:    command.Args(1, 1, "one FILE, or - for standard input"),
	}
	conf.Add(cmd)
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		content, err := command.ReadToken(env, args[0])
		if err != nil {
			return err
		}
		keys, err := openKeys(env, &conf, false)
		if err != nil {
			return err
		}
		said, err := token.Decode(content)
		if err == nil {
			_, err = keys.Verify(content, said.Audience)
		}
		var refused *token.Error
		if errors.As(err, &refused) && refused.Reason == token.Unavailable {
			return notPermitted(cmp.Or(keys.Err(), err))
		}
		answer := verified{Valid: err == nil, shownToken: showToken(&said)}
		if refused != nil {
			answer.Reason, answer.Detail = refused.Reason, refused.Error()
		}
		return command.Show(env, *format, func(w io.Writer, a verified) { tokenText(w, &said, a.Detail) },
			func(a verified) bool { return !a.Valid })(answer, nil)
	}
	return cmd
}

// tokenText writes the claims of a token. detail says why the token is invalid, and is empty for a
// valid one.
func tokenText(out io.Writer, c *token.Claims, detail string) {
	w := text.NewTable(out, "CLAIM", "VALUE")
	w.Row("valid", cmp.Or(detail, "yes"))
	if c.KeyID != "" { // the token could be decoded
		stamp := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return text.Time(t)
		}
		w.Row("id", ascii(c.ID))
		w.Row("subject", ascii(c.Subject))
		w.Row("audience", ascii(c.Audience))
		w.Row("node ids", ascii(c.NodeIDs()))
		w.Row("services", strings.Join(text.Each(c.Services, ascii), " "))
		w.Row("signing key", ascii(c.KeyID))
		w.Row("issued", stamp(c.Issued))
		w.Row("expires", stamp(c.Expires))
	}
	w.Flush()
}
