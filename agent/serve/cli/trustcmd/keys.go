package trustcmd

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/signkey"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

func keysCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "keys",
		Short: "Manage the keys that sign records of a pool",
		Long: `Operators sign resources with ed25519 keys, and root keys sign the trust file. A key is in a file, or
in an ssh-agent. Commands identify keys by fingerprint, or by their name in the trust file.`,
		Example: "  nearside keys generate alice.key\n  nearside keys list\n" +
			"  nearside keys revoke alice --since 2026-11-28T08:00:00Z",
	}, generateCommand(env), listCommand(env), revokeCommand(env), resignCommand(env))
}

func generateCommand(env *command.Env) *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "generate FILE",
		Short: "Make a key",
		Long: `Writes a new ed25519 key to FILE (PKCS #8 in PEM, mode 0600) and its public key to FILE.pub. It prints
the fingerprint and the public key. An existing file is an error.

The key has no rights until the trust file lists it: add it there with "nearside trust edit". Keys
of "ssh-keygen -t ed25519" work too.`,
		Example: "  nearside keys generate alice.key",
		Args:    command.Args(1, 1, "FILE"),
	}
	cmd.Flags().StringVar(&comment, "name", "", "name of the holder, in the file with the public key")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		id, err := generate(args[0], comment)
		if err != nil {
			return err
		}
		public, err := command.ReadFile(args[0] + ".pub")
		if err != nil {
			return err
		}
		text.Printf(env.Stdout, "fingerprint: %s\npublic key: %s\n", id, strings.TrimSpace(string(public)))
		return nil
	}
	return cmd
}

// generate makes a key, and returns its fingerprint.
func generate(path, comment string) (trust.ID, error) {
	for _, p := range []string{path, path + ".pub"} {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			return trust.ID{}, fmt.Errorf("%s exists; give another file, or remove it if it is not needed", p)
		}
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return trust.ID{}, err
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return trust.ID{}, err
	}
	if err := command.WriteSecret(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})); err != nil {
		return trust.ID{}, err
	}
	key := trust.PublicKey(public)
	line := strings.TrimSpace(key.String()+" "+text.OneLine(comment)) + "\n"
	return key.ID(), os.WriteFile(path+".pub", []byte(line), 0o644) // #nosec G306 -- a public key
}

// listedKey is a key in the output of "keys list".
type listedKey struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	Use       string    `json:"use"` // "root", "operator", "node", or "unknown"
	Role      string    `json:"role,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Revoked   time.Time `json:"revoked,omitzero"`
	Records   int       `json:"records"` // that it signed and that the sender may read
}

func listCommand(env *command.Env) *cobra.Command {
	return command.Asking(env, &cobra.Command{
		Use:   "list",
		Short: "List the keys of the trust file",
		Long: `Lists the root keys, the keys of operators, and the keys of nodes with a role, with the number of the
pool's records that each of them signed. Keys that signed records and that the trust file does not
list are unknown.`,
		Example: "  nearside keys list\n  nearside keys list -o json | jq '.[] | select(.use == \"unknown\")'",
	}, command.AsTable, func(w io.Writer, list []listedKey) {
		text.Rows(w, list, func(k listedKey) []string {
			state := "valid"
			switch now := time.Now(); {
			case !k.Revoked.IsZero():
				state = "revoked since " + text.Time(k.Revoked)
			case now.Before(k.NotBefore):
				state = "from " + text.Time(k.NotBefore)
			case !k.NotAfter.IsZero():
				state = "until " + text.Time(k.NotAfter)
			}
			return []string{text.OrDash(k.Name), k.ID, k.Use, text.OrDash(k.Role), state, strconv.Itoa(k.Records)}
		}, "NAME", "FINGERPRINT", "USE", "ROLE", "STATE", "RECORDS")
	}, func(ctx context.Context, _ []string) ([]listedKey, error) {
		t, err := env.Client().Trust(ctx)
		if err != nil {
			return nil, err
		}
		records, err := env.Client().TrustRecords(ctx, "")
		if err != nil {
			return nil, err
		}
		return listed(t, records.Items), nil
	})
}

// listed joins the keys of the trust file with those of records.
func listed(t *api.Trust, records []api.TrustRecord) []listedKey {
	out := []listedKey{}
	add := func(use string, k api.TrustKey) {
		out = append(out, listedKey{Name: k.Name, ID: k.ID, Use: use, Role: k.Role, NotBefore: k.NotBefore,
			NotAfter: k.NotAfter})
	}
	find := func(id string) *listedKey {
		if i := slices.IndexFunc(out, func(k listedKey) bool { return k.ID == id }); i >= 0 {
			return &out[i]
		}
		return nil
	}
	if t.File != nil {
		for _, k := range t.File.Roots {
			add("root", k)
		}
		for _, k := range t.File.Keys {
			add("operator", k)
		}
	}
	for _, n := range t.Nodes {
		if n.Role != "" || slices.ContainsFunc(records, func(r api.TrustRecord) bool { return r.Signer == n.ID }) {
			add("node", api.TrustKey{Name: n.Name, ID: n.ID, Role: n.Role})
		}
	}
	for _, r := range records {
		if r.Signer == "" {
			continue
		}
		if find(r.Signer) == nil {
			add("unknown", api.TrustKey{ID: r.Signer})
		}
		find(r.Signer).Records++
	}
	if t.File != nil {
		for _, r := range t.File.Revoked {
			if find(r.ID) == nil {
				add("unknown", r)
			}
			find(r.ID).Revoked = r.Since
		}
	}
	return out
}

// fingerprint returns the fingerprint of a key, given by name or fingerprint.
func fingerprint(ctx context.Context, env *command.Env, key string) (string, error) {
	t, err := env.Client().Trust(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range listed(t, nil) {
		if k.Name == key {
			return k.ID, nil
		}
	}
	if _, err := nodeID(key); err != nil {
		return "", command.Hinted(fmt.Errorf("no key has the name or fingerprint %s", key), "nearside keys list")
	}
	return key, nil
}

func revokeCommand(env *command.Env) *cobra.Command {
	var keys []string
	var since string
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke a key that was lost or stolen",
		Long: `Publishes the trust file with a revocation of a key: its records are no longer in force on any node,
except those that it signed before the key was stolen. KEY is a name in the trust file, or a
fingerprint of "nearside keys list".

The command lists the records of the key that stay in force: those that are in force on this node and
dated before --since. The thief of a key can date a record back, so check the list. To restore
others, apply them again with another key.`,
		Example: "  nearside keys revoke alice --since 2026-11-28T08:00:00Z\n" +
			"  nearside keys revoke bob --root /media/usb/root.key",
		Args: command.Args(1, 1, "KEY: a name or a fingerprint"),
	}
	rootsFlag(cmd, &keys)
	cmd.Flags().StringVar(&since, "since", "", "time of the theft, such as 2026-11-28T08:00:00Z (default: now)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := time.Now().UTC().Truncate(time.Second)
		if since != "" {
			var err error
			if at, err = time.Parse(time.RFC3339, since); err != nil {
				return command.Usagef("--since %q is invalid; give a time like 2026-11-28T08:00:00Z", since)
			}
		}
		t, e, err := present(cmd.Context(), env)
		if err != nil {
			return err
		}
		r, err := revocation(cmd.Context(), env, t, args[0], at)
		if err != nil {
			return err
		}
		document, err := trust.Revoke(e.Document, *r)
		if err != nil {
			return err
		}
		signers, shut, err := roots(env, keys)
		if err != nil {
			return err
		}
		defer shut()
		return publish(cmd.Context(), env, t, &trust.Envelope{Document: document}, signers, "")
	}
	return cmd
}

// revocation returns the revocation of a key, with its records that stay in force.
func revocation(ctx context.Context, env *command.Env, t *api.Trust, key string,
	since time.Time) (*trust.Revocation, error) {
	records, err := env.Client().TrustRecords(ctx, "")
	if err != nil {
		return nil, err
	}
	known := listed(t, records.Items)
	i := slices.IndexFunc(known, func(k listedKey) bool { return k.Name == key || k.ID == key })
	id, name := key, ""
	if i >= 0 {
		id, name = known[i].ID, known[i].Name
		if known[i].Use == "root" {
			return nil, command.Hinted(fmt.Errorf("%s is a root key", key), "remove it from roots: nearside trust edit")
		}
	}
	r := &trust.Revocation{Name: name, Since: since, Keep: &[]string{}}
	if err := r.Key.UnmarshalText([]byte(id)); err != nil {
		return nil, command.Hinted(fmt.Errorf("no key has the name or fingerprint %s", key), "nearside keys list")
	}
	var rows [][]string
	void := 0
	for _, x := range records.Items {
		if x.Signer != id {
			continue
		}
		date, _, _ := strings.Cut(x.ID, "-")
		clock, err := strconv.ParseUint(date, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: the ID %q has no date", x.Ref, x.ID)
		}
		if at := engine.HLC(clock).Time(); at.Before(since) && (x.Reason == "" || t.Mode != trust.ModeEnforce) {
			*r.Keep = append(*r.Keep, x.ID)
			rows = append(rows, []string{x.Ref.String(), text.Time(at), "yes"})
		} else {
			void++
			rows = append(rows, []string{x.Ref.String(), text.Time(at), "no"})
		}
	}
	text.Printf(env.Stdout, "records of %s that stay in force: %d; that are void: %d\n", cmp.Or(name, id), len(rows)-void,
		void)
	if len(rows) > 0 {
		text.Rows(env.Stdout, rows, func(r []string) []string { return r }, "RECORD", "DATED", "STAYS")
	}
	if void > 0 {
		text.Println(env.Stdout, "earlier revisions of void records: nearside history TYPE NAME, and nearside rollback")
	}
	return r, nil
}

func resignCommand(env *command.Env) *cobra.Command {
	var signer, value string
	cmd := &cobra.Command{
		Use:   "resign",
		Short: "Sign records again with another key",
		Long: `Signs the records of a key, or those without a signature, again with another key. Use it before a key
expires or leaves the trust file. The content does not change, and each record gets a new version.`,
		Example: "  nearside keys resign --sign operator.key\n" +
			"  nearside keys resign --of bob --sign ssh-agent:alice",
	}
	cmd.Flags().StringVar(&signer, "of", "unsigned",
		"name or fingerprint of the key whose records are signed again, or unsigned")
	cmd.Flags().StringVar(&value, "sign", "", "file of the key that signs, or ssh-agent:COMMENT (default: "+signkey.Env+
		", else "+operatorKeyFile+")")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		key, err := open(env, cmp.Or(value, env.Getenv(signkey.Env), operatorKeyFile))
		if err != nil {
			return err
		}
		defer key.Close()
		if signer != "unsigned" {
			if signer, err = fingerprint(cmd.Context(), env, signer); err != nil {
				return err
			}
		}
		n, err := resign(cmd.Context(), env, signer, key)
		if n > 0 || err == nil {
			text.Printf(env.Stdout, "signed %s\n", plural.Count(n, "record"))
		}
		return err
	}
	return cmd
}
