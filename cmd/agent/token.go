package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// defaultValidity is how long a token is valid when nothing is said.
const defaultValidity = 720 * time.Hour

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, look at and revoke tokens of Envoys and API clients",
		Long: `Tokens say who an Envoy or a client of the API is, where its user does not. They are signed by keys below paths.state
and verified by the agent without asking anybody. These commands work on those files, as root or as the agent's user; a
running agent knows what they change within a second.`,
		Example: "  nearside token create --name 'web-*'\n  nearside token keys\n  nearside token revoke -f web.token",
		Args:    group,
		RunE:    help,
	}
	cmd.AddCommand(a.tokenCreateCommand(), a.tokenInspectCommand(), a.tokenKeysCommand(), a.tokenRotateCommand(),
		a.tokenRevokeCommand(), a.tokenRevokedCommand())
	return cmd
}

// tokenKeys returns the signing keys of the agent with this config.
func (c *configFlags) tokenKeys(a *app) (*token.Keys, error) {
	cfg, _, err := c.load(a)
	if err != nil {
		return nil, err
	}
	return token.Open(filepath.Join(cfg.Paths.State, token.Dir), slog.New(slog.DiscardHandler), time.Now), nil
}

// notPermitted gives an error about files that this user may not use its exit code and hint.
func notPermitted(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &exitError{err: &keysPermissionError{err}, code: exitPermission}
	}
	return err
}

type keysPermissionError struct{ err error }

func (e *keysPermissionError) Error() string { return e.err.Error() }
func (e *keysPermissionError) Unwrap() error { return e.err }
func (e *keysPermissionError) Hint() string {
	return "run the command as root or as the agent's user; --config or --set paths.state=DIR name another agent"
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
		Services: each(c.Services, ascii), KeyID: ascii(c.KeyID), Issued: c.Issued, Expires: c.Expires,
	}
}

// ascii quotes what no valid token says: before it is verified, its claims are anybody's text.
func ascii(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var (
		conf       configFlags
		c          token.Claims
		typ, write string
		api        bool
		validFor   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create --name GLOB",
		Short: "Make a token",
		Long: `Prints a token alone, or with -o json what it says too. It is a secret: whoever has it is who it names.

A token for Envoys names the proxies that they may be: those whose node id is MESH.NAME for a name of the glob --name, in which
"*" stands for any number of characters. --service names the values of kuma.io/service that a Dataplane in the Envoy's node
metadata may claim; without it the Envoy may bring none. --proxy-type egress or ingress is for the proxies of
ZoneEgresses and ZoneIngresses, which have no mesh.
With --api the token is for a client of the HTTP API, and the roles of --subject say what it may do.
The first token makes the first signing key.`,
		Example: `  nearside token create --name 'web-*' --valid-for 720h --write web.token
  nearside token create -m shop --name cart --service cart -o json
  nearside token create --api --subject grafana --valid-for 8760h`,
		Args: args(0, 0, "no arguments; name the proxies with --name"),
	}
	a.meshFlag(cmd)
	conf.add(cmd)
	format := outputFlag(cmd, "text", "json", "yaml")
	fl := cmd.Flags()
	fl.StringVar(&c.Name, "name", "",
		"glob on names of Dataplanes, ZoneEgresses or ZoneIngresses (required, but with --api)")
	fl.StringVar(&typ, "proxy-type", proxyDataplane, "type of the proxies: "+strings.Join(proxyTypes(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("proxy-type",
		cobra.FixedCompletions(proxyTypes(), cobra.ShellCompDirectiveNoFileComp))
	fl.StringArrayVar(&c.Services, "service", nil,
		"glob on kuma.io/service values that a Dataplane in node metadata may claim; repeatable")
	fl.StringVar(&c.Subject, "subject", "",
		"who has the token, for logs and roles (default: MESH.NAME; required with --api)")
	fl.BoolVar(&api, "api", false, "a token for a client of the HTTP API")
	fl.DurationVar(&validFor, "valid-for", defaultValidity, "how long it is valid, at most 10 years")
	fl.StringVar(&write, "write", "", "write the token to this file, with mode 0600, instead of standard output")
	cmd.RunE = func(*cobra.Command, []string) error {
		zone := typ == string(offline.ProxyEgress) || typ == string(offline.ProxyIngress)
		switch {
		case api && (c.Name != "" || len(c.Services) > 0 || fl.Changed("mesh") || fl.Changed("proxy-type")):
			return usagef("--name, --service, --mesh and --proxy-type do not go with --api")
		case api && c.Subject == "":
			return usagef("--subject is missing: say who the token is for")
		case !api && c.Name == "":
			return usagef("--name is missing: name the Dataplanes of the Envoys, such as 'web-*'")
		case !zone && typ != proxyDataplane:
			return usagef("--proxy-type %q is not possible; one of %s", typ, strings.Join(proxyTypes(), ", "))
		case zone && (fl.Changed("mesh") || len(c.Services) > 0):
			return usagef("--mesh and --service do not go with --proxy-type %s, which is for all meshes", typ)
		case validFor <= 0 || validFor > token.MaxValidity:
			return usagef("--valid-for %s is not possible; give a duration above 0 and of at most %s (10 years)",
				validFor, token.MaxValidity)
		}
		c.Audience = token.AudienceAPI
		if !api {
			c.Audience, c.Mesh = token.AudienceXDS, a.mesh
			if zone {
				c.Mesh, c.Name = "", typ+"."+c.Name
			}
			c.Subject = cmp.Or(c.Subject, strings.TrimPrefix(c.NodeIDs(), "."))
		}
		if err := c.Check(); err != nil {
			return &exitError{err: err, code: exitUsage}
		}
		keys, err := conf.tokenKeys(a)
		if err != nil {
			return err
		}
		text, err := keys.Create(c, validFor)
		if err != nil {
			return notPermitted(err)
		}
		a.warnKeys(keys.Err())
		made, err := token.Decode(text)
		if err != nil {
			return err
		}
		shown := showToken(&made)
		if write != "" {
			if err := writeSecret(write, []byte(text+"\n")); err != nil {
				return err
			}
			printf(a.stderr, "wrote %s; the token is valid until %s\n", write, made.Expires.Format(time.RFC3339))
		} else {
			shown.Token = text
		}
		if ok, err := a.printed(*format, shown); ok {
			return err
		}
		if write == "" {
			printLine(a.stdout, text)
		}
		return nil
	}
	return cmd
}

// warnKeys prints what is wrong with files of keys that a command could do without.
func (a *app) warnKeys(err error) {
	if err != nil {
		a.warn(strings.Split(err.Error(), "\n"))
	}
}

func (a *app) tokenInspectCommand() *cobra.Command {
	var conf configFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Show what a token says, and whether it is valid",
		Long: `Decodes the token in a file, or with - on standard input, and verifies it as the agent does.
The exit code is 2 when it is not valid; what it says is shown all the same and may be invented.`,
		Example: "  nearside token inspect web.token\n  nearside token create --name web | nearside token inspect - -o json",
		Args:    args(1, 1, "one FILE, or - for standard input"),
	}
	conf.add(cmd)
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		text, err := a.readToken(args[0])
		if err != nil {
			return err
		}
		keys, err := conf.tokenKeys(a)
		if err != nil {
			return err
		}
		said, err := token.Decode(text)
		if err == nil {
			_, err = keys.Verify(text, said.Audience)
		}
		var refused *token.Error
		if errors.As(err, &refused) && refused.Reason == token.Unavailable {
			return notPermitted(cmp.Or(keys.Err(), err))
		}
		answer := struct {
			Valid  bool         `json:"valid"`
			Reason token.Reason `json:"reason,omitempty"`
			Detail string       `json:"detail,omitempty"`
			shownToken
		}{Valid: err == nil, shownToken: showToken(&said)}
		if refused != nil {
			answer.Reason, answer.Detail = refused.Reason, refused.Error()
		}
		ok, err := a.printed(*format, answer)
		if !ok {
			err = a.tokenText(&said, answer.Detail)
		}
		if err == nil && !answer.Valid {
			err = silent(exitNo)
		}
		return err
	}
	return cmd
}

// writeSecret puts a file that its owner alone can read in place of what is there, whatever mode
// that has.
func writeSecret(path string, data []byte) error {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; name a file that can be replaced", path)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup() // nothing once the file is in place
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// tokenText writes what a token says; detail is why it is not valid.
func (a *app) tokenText(c *token.Claims, detail string) error {
	w := newTable(a.stdout, "CLAIM", "VALUE")
	w.row("valid", cmp.Or(detail, "yes"))
	if c.KeyID != "" { // it could be decoded
		stamp := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.Format(time.RFC3339)
		}
		w.row("id", ascii(c.ID))
		w.row("subject", ascii(c.Subject))
		w.row("audience", ascii(c.Audience))
		w.row("node ids", ascii(c.NodeIDs()))
		w.row("services", strings.Join(each(c.Services, ascii), " "))
		w.row("signing key", ascii(c.KeyID))
		w.row("issued", stamp(c.Issued))
		w.row("expires", stamp(c.Expires))
	}
	return w.Flush()
}

// readToken reads a token from a file or, for -, from standard input.
func (a *app) readToken(path string) (string, error) {
	name, in := path, a.stdin
	if path == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, reason(err))
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, token.MaxBytes+3)) // with a line end
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, reason(err))
	}
	return strings.TrimSpace(string(data)), nil
}
