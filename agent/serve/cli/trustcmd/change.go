package trustcmd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func modeCommand(env *command.Env) *cobra.Command {
	var keys []string
	var file string
	var force bool
	modes := strings.Join(trust.Modes[:], ", ")
	cmd := &cobra.Command{
		Use:   "mode MODE",
		Short: "Change the mode of the trust file",
		Long: `Publishes the trust file with another mode. MODE is one of ` + modes + `:

  off      nothing is judged
  warn     data that their signers may not write are listed, and stay in force
  enforce  such data are not in force, and only enrolled nodes are members

The command refuses a change to enforce while this node lists data that are not permitted, unless
--force is given. If the trust file requires several root keys and not all are given, the command
writes a file for the holders of the others, and the exit code is 2.`,
		Example:   "  nearside trust mode warn\n  nearside trust mode enforce --root /media/usb/root.key",
		Args:      command.Args(1, 1, "one MODE: "+modes),
		ValidArgs: trust.Modes[:],
	}
	rootsFlag(cmd, &keys)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file for other signers (default: trust-VERSION.yaml)")
	cmd.Flags().BoolVar(&force, "force", false, "enforce, although data are not permitted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mode := args[0]
		if !slices.Contains(trust.Modes[:], mode) {
			return command.Usagef("%q is not a mode; use one of %s", mode, modes)
		}
		t, e, err := present(cmd.Context(), env)
		switch {
		case err != nil:
			return err
		case t.File.Mode == mode:
			text.Printf(env.Stdout, "the mode is %s already\n", mode)
			return nil
		case mode == trust.ModeEnforce && t.Mode == trust.ModeOff && !force:
			return command.Hinted(errors.New("the mode is off, so this node does not list the data that would not be in force"),
				"run first: nearside trust mode warn; then check nearside trust show on the nodes")
		case mode == trust.ModeEnforce && t.Total > 0 && !force:
			printTrust(env.Stderr, t)
			return command.Hinted(fmt.Errorf("%s would not be in force", plural.Count(t.Total, "item")),
				"sign records with nearside keys resign, enroll nodes with nearside trust enroll, or give --force")
		}
		document, err := trust.SetMode(e.Document, mode)
		if err != nil {
			return err
		}
		signers, shut, err := roots(env, keys)
		if err != nil {
			return err
		}
		defer shut()
		return publish(cmd.Context(), env, t, &trust.Envelope{Document: document}, signers, file)
	}
	return cmd
}

func updateCommand(env *command.Env) *cobra.Command {
	var keys []string
	var file string
	cmd := &cobra.Command{
		Use:   "update -f FILE",
		Short: "Sign a trust file and publish it",
		Long: `Signs a trust file with root keys, and publishes it. Its version must be higher than the one in force,
and enough root keys of the file in force must sign it. If signatures are missing, the command adds
its own to FILE for the holders of other root keys, and the exit code is 2.

If the agent has no trust file, because it was restored or its config enforces trust, the file
becomes its first one.`,
		Example: "  nearside trust show --document > trust.yaml\n" +
			"  nearside trust update -f trust.yaml --root /media/usb/root.key",
		Args: command.Args(0, 0, "no arguments: the trust file is given with -f"),
	}
	rootsFlag(cmd, &keys)
	cmd.Flags().StringVarP(&file, "file", "f", "", "trust file, with or without signatures")
	_ = cmd.MarkFlagRequired("file") // fails only for an unknown flag
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := readFile(file)
		if err != nil {
			return err
		}
		t, err := env.Client().Trust(cmd.Context())
		if err != nil {
			return err
		}
		signers, shut, err := roots(env, keys)
		if err != nil {
			return err
		}
		defer shut()
		return publish(cmd.Context(), env, t, e, signers, file)
	}
	return cmd
}

// readFile reads and checks a trust file.
func readFile(path string) (*trust.Envelope, error) {
	b, err := command.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e, err := trust.ParseEnvelope(b)
	if err == nil {
		_, err = trust.DecodeFile(e.Document)
	}
	if err != nil {
		return nil, command.Exit(command.ExitInvalid, fmt.Errorf("%s: %w", path, err))
	}
	return e, nil
}

func signCommand(env *command.Env) *cobra.Command {
	var keys []string
	var file string
	cmd := &cobra.Command{
		Use:   "sign -f FILE",
		Short: "Add a signature to a trust file",
		Long: `Signs a trust file with root keys, and writes the signatures into the file. It needs no agent, so it
works on a machine that is offline. Then "nearside trust update" publishes the file.`,
		Example: "  nearside trust sign -f trust-7.yaml --root /media/usb/root.key",
		Args:    command.Args(0, 0, "no arguments: the trust file is given with -f"),
	}
	rootsFlag(cmd, &keys)
	cmd.Flags().StringVarP(&file, "file", "f", "", "trust file, with or without signatures")
	_ = cmd.MarkFlagRequired("file") // fails only for an unknown flag
	cmd.RunE = func(*cobra.Command, []string) error {
		e, err := readFile(file)
		if err != nil {
			return err
		}
		signers, shut, err := roots(env, keys)
		if err != nil {
			return err
		}
		defer shut()
		for _, k := range signers {
			if err := e.Sign(k); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, e.Encode(), 0o644); err != nil { // #nosec G306 -- it has no secrets
			return err
		}
		text.Printf(env.Stdout, "%s has %s\n", file, plural.Count(len(e.Signatures), "signature"))
		return nil
	}
	return cmd
}

func editCommand(env *command.Env) *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "edit",
		Short: "Change the trust file in an editor",
		Long: `Opens the document of the trust file in the editor of VISUAL or EDITOR, or else in vi, with the next
version, and publishes the result. Nothing is published if you change nothing else. If the result
cannot be published, it stays in a file that the error names.`,
		Example: "  nearside trust edit --root /media/usb/root.key",
	}
	rootsFlag(cmd, &keys)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t, e, err := present(cmd.Context(), env)
		if err != nil {
			return err
		}
		before, err := trust.Edit(e.Document, func(b []byte, _ *trust.File) ([]byte, error) { return b, nil })
		if err != nil {
			return err
		}
		signers, shut, err := roots(env, keys)
		if err != nil {
			return err
		}
		defer shut()
		after, path, err := command.Edited(cmd.Context(), env, before)
		if err != nil {
			return err
		}
		if bytes.Equal(before, after) {
			_ = os.Remove(path)
			text.Println(env.Stderr, "nothing was changed")
			return nil
		}
		if err := publish(cmd.Context(), env, t, &trust.Envelope{Document: after}, signers, ""); err != nil {
			return command.Hinted(err, "the document is in "+path)
		}
		_ = os.Remove(path)
		return nil
	}
	return cmd
}
