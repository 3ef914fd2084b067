// Package injectcmd implements the command inject.
package injectcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/answer/inject/manifest"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Commands returns the commands.
func Commands(env *command.Env) []*cobra.Command { return []*cobra.Command{injectCommand(env)} }

func injectCommand(env *command.Env) *cobra.Command {
	var (
		f        command.FileFlags
		o        manifest.Options
		out      string
		identity string
		quiet    bool
	)
	cmd := &cobra.Command{
		Use:   "inject -f FILE|DIR|-",
		Short: "Add sidecars to Kubernetes manifests",
		Long: `Adds a native sidecar with Envoy to the pods of Deployments, StatefulSets, DaemonSets, ReplicaSets,
ReplicationControllers, Jobs, CronJobs, and Pods, also in Lists. It reads and writes text, and needs
neither a cluster nor an agent. It inserts lines and changes no others: comments, quotes, and all
other objects stay byte by byte.

All pods are injected except those with the label or annotation kuma.io/sidecar-injection: disabled,
those whose Namespace object in the input has it, pods with hostNetwork, and pods in kube-system,
kube-public, kube-node-lease, nearside, and kuma-system. The label enabled injects a pod of such a
namespace. --enabled-only injects only pods that are enabled, themselves or by their Namespace, as
Kuma does.

A pod that is injected already stays as it is. Pods that Kuma has injected are an error.

Standard error has one line for each object with pods. -q prints only warnings and errors. If any
document has a fault, the command writes nothing, and its exit code is 65.`,
		Example: `  nearside inject -f deployment.yaml | kubectl apply -f -
  kubectl kustomize prod | nearside inject -f - -m prod | kubectl apply -f -
  nearside inject -R -f manifests --out injected/`,
		Args: command.Args(0, 0, "no arguments; select files with -f"),
	}
	f.AddPaths(cmd, "manifests to inject")
	command.MeshFlagWithoutAgent(env, cmd)
	fl := cmd.Flags()
	fl.StringVar(&out, "out", "",
		"write to this file, or to files of the same names in this folder, instead of standard output")
	fl.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of objects that name none")
	fl.StringVar(&o.EnvoyImage, "envoy-image", inject.DefaultEnvoyImage, "image of the sidecar")
	command.ChoiceFlag(cmd, &identity, "identity", "",
		"volume of the sidecar: csi gives each pod its own sockets, and hostpath needs no CSI driver: ",
		string(inject.IdentityCSI), string(inject.IdentityHostPath))
	fl.BoolVar(&o.EnabledOnly, "enabled-only", false,
		"inject only pods that are enabled by "+inject.InjectionKey+" of the pod or its Namespace")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print only warnings and errors to standard error")
	cmd.RunE = func(*cobra.Command, []string) error {
		read, err := f.Read(env.Stdin)
		if err != nil {
			return err
		}
		o.Mesh, o.Identity = command.FixedMesh(env), inject.Identity(identity)
		texts := make([]manifest.Text, len(read))
		for i, t := range read {
			texts[i] = manifest.Text{Name: t.Name, Data: t.Data}
		}
		r, err := manifest.Inject(texts, o)
		if err != nil {
			return command.Exit(command.ExitInvalid, err)
		}
		if err := write(env, out, &f, read, r.Texts); err != nil {
			return err
		}
		report(env.Stderr, r, quiet)
		return nil
	}
	return cmd
}

// report prints what happened to each object with pods.
func report(w io.Writer, r *manifest.Result, quiet bool) {
	injected := 0
	for _, o := range r.Objects {
		if o.Outcome == manifest.Injected {
			injected++
		}
		where := fmt.Sprintf("%s:%d: %s: ", o.File, o.Line, o.Name)
		switch {
		case o.Warning:
			text.Printf(w, "warning: %s%s: %s\n", where, o.Outcome, o.Reason)
		case quiet:
		case o.Reason != "":
			text.Printf(w, "%s%s: %s\n", where, o.Outcome, o.Reason)
		default:
			text.Printf(w, "%s%s\n", where, o.Outcome)
		}
		for _, n := range o.Notes {
			prefix := "note: "
			if n.Warning {
				prefix = "warning: "
			} else if quiet {
				continue
			}
			if n.Field != "" {
				n.Text = n.Field + ": " + n.Text
			}
			text.Println(w, prefix+where+n.Text)
		}
	}
	if !quiet {
		text.Printf(w, "injected %d of %s with pods; %s\n", injected, plural.Count(len(r.Objects), "object"),
			plural.Count(r.Others, "other object")+" unchanged")
	}
}

// write writes the texts to standard output, a file, or a folder.
func write(env *command.Env, out string, f *command.FileFlags, read []offline.Text, texts []manifest.Text) error {
	if out == "" {
		_, err := text.Verbatim(env.Stdout).Write(joined(texts))
		return err
	}
	st, err := os.Stat(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--out %s: %w", out, command.Reason(err))
	}
	folder := strings.HasSuffix(out, "/") || err == nil && st.IsDir()
	if !folder {
		mode := fs.FileMode(0o666)
		for _, t := range read {
			if t.Mode != 0 {
				mode &= t.Mode.Perm()
			}
		}
		return replace(out, joined(texts), mode)
	}
	names := make([]string, len(texts))
	from := map[string]string{}
	for i, t := range texts {
		if names[i], err = relative(t.Name, f.Paths); err != nil {
			return err
		}
		if other := from[names[i]]; other != "" {
			return command.Usagef("--out %s: %s and %s would be written to the same file; inject them separately", out, other,
				t.Name)
		}
		from[names[i]] = t.Name
	}
	for i, t := range texts {
		target := filepath.Join(out, names[i])
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { // #nosec G301 -- as the manifests
			return fmt.Errorf("--out %s: %w", out, command.Reason(err))
		}
		if err := replace(target, t.Data, read[i].Mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}

// relative returns the name of an input file below the folder of -f, or its base name.
func relative(name string, paths []string) (string, error) {
	for _, p := range paths {
		if p == "-" && name == "<stdin>" {
			return "", command.Usagef("--out is a folder, but standard input has no file name; give a file to --out")
		}
		if rel, err := filepath.Rel(p, name); err == nil && rel != "." && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return filepath.Base(name), nil
}

// replace replaces a file at once. The umask applies to its mode.
func replace(path string, data []byte, mode fs.FileMode) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() { // such as /dev/stdout
		if err := os.WriteFile(path, data, mode); err != nil {
			return fmt.Errorf("--out %s: %w", path, command.Reason(err))
		}
		return nil
	}
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("--out %s: %w", path, command.Reason(err))
	}
	return nil
}

// joined returns all texts as one stream of documents.
func joined(texts []manifest.Text) []byte {
	if len(texts) == 1 {
		return texts[0].Data
	}
	var out []byte
	for _, t := range texts {
		if len(bytes.TrimSpace(t.Data)) == 0 {
			continue
		}
		if len(out) > 0 {
			if out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			switch {
			case bytes.HasPrefix(t.Data, []byte("%")): // a directive must follow the end of a document
				out = append(out, "...\n"...)
			case !bytes.HasPrefix(t.Data, []byte("---")):
				out = append(out, "---\n"...)
			}
		}
		out = append(out, bytes.TrimPrefix(t.Data, []byte("\ufeff"))...)
	}
	return out
}
