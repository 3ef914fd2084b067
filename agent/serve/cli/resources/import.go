package resources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/importer"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func importCommand(env *command.Env) *cobra.Command {
	var f command.FileFlags
	var folder string
	var leaveOut bool
	cmd := &cobra.Command{
		Use:   "import -f EXPORT",
		Short: "Turn an export of a Kuma control plane into resource files",
		Long: `Reads what "kumactl export" writes, in the universal or the Kubernetes format, and reports for each
document whether it is taken, changed, left out, or refused, with the reason. The command needs no
agent.

A Secret that a resource uses becomes a file below secrets, and the resource refers to the file. If
the export has the certificate and key of a builtin authority, the authority becomes a provided one,
so that proxies of agents and of the control plane trust each other. Export with --include-admin to
include Secrets.

--write writes the resources to a new folder that "nearside validate" accepts. The paths of Secrets
are absolute, so the folder has to be at the same path on every node. The agent's user must own the
files below secrets.

A refused document cannot be taken, and traffic would differ without it. Then nothing is written,
and the exit code is 65. --leave-out leaves refused documents out.

-o text prints one line for each reason, wide prints one line for each document, and json and yaml
print {"version", "counts", "documents": [{"file", "document", "line", "type", "mesh", "name",
"action", "reasons"}], "warnings", "unusable"}.`,
		Example: `  kumactl export --profile all --include-admin | nearside import -f -
  nearside import -f export.yaml --write /etc/nearside/resources
  nearside import -f export.yaml -o json | jq -c '.documents[]'`,
		Args: command.Args(0, 0, "no arguments; give the export with -f"),
	}
	f.AddPaths(cmd, "export to read")
	cmd.Flags().StringVar(&folder, "write", "", "write the resources to this new or empty folder")
	cmd.Flags().BoolVar(&leaveOut, "leave-out", false, "leave out refused documents")
	format := command.OutputFlag(cmd, "text", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if leaveOut && folder == "" {
			return command.Usagef("--leave-out decides what is written; give --write DIR")
		}
		at, err := filepath.Abs(cmp.Or(folder, "."))
		if err != nil {
			return err
		}
		input, err := f.Read(env.Stdin)
		if err != nil {
			return err
		}
		var texts []importer.Text
		for _, t := range input {
			texts = append(texts, importer.Text{Name: t.Name, Data: t.Data})
		}
		r := importer.Read(texts, filepath.Join(at, "secrets"))
		if len(r.Documents) == 0 {
			return command.ErrNothing
		}
		if ok, err := command.Printed(env, *format, r); err != nil {
			return err
		} else if !ok {
			printImport(env.Stdout, r, *format == "wide")
		}
		env.Warn(r.Warnings)
		if err := importable(r, leaveOut); err != nil {
			return err
		}
		if folder == "" {
			text.Println(env.Stderr, "nothing is written; --write DIR writes the resources")
			return nil
		}
		if err := writeImport(at, r.Files); err != nil {
			return err
		}
		text.Printf(env.Stderr, "%s written to %s; check them with: nearside validate -f %s\n",
			plural.Count(len(r.Files), "file"), folder, folder)
		return nil
	}
	return cmd
}

// importable returns an error if the export cannot be written.
func importable(r *importer.Report, leaveOut bool) error {
	switch n := r.Counts[importer.Refused]; {
	case r.Unusable != "":
		return command.Exit(command.ExitInvalid, errors.New(r.Unusable))
	case n > 0 && !leaveOut:
		return command.Exit(command.ExitInvalid, fmt.Errorf("%s refused, and nothing is written: fix what the report "+
			"names, or review it and repeat the command with --write DIR --leave-out", plural.Count(n, "document")))
	case len(r.Files) == 0:
		return command.Exit(command.ExitInvalid, errors.New("no document can be taken, so there is nothing to write"))
	}
	return nil
}

// maxNames is the number of resources that a line of the report names.
const maxNames = 3

// printImport prints the report: a line for each document, or for each reason.
func printImport(w io.Writer, r *importer.Report, wide bool) {
	type line struct{ action, reason string }
	var lines []line
	names := map[line][]string{}
	rank := []string{importer.Refused, importer.Changed, importer.LeftOut, importer.Taken}
	for i := range r.Documents {
		d := &r.Documents[i]
		l := line{d.Action, strings.Join(d.Reasons, "; ")}
		id := d.ID()
		if wide || d.Action == importer.Refused {
			id += fmt.Sprintf(" (%s:%d)", d.File, d.Line)
		}
		if names[l] == nil {
			lines = append(lines, l)
		}
		names[l] = append(names[l], id)
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Compare(slices.Index(rank, a.action), slices.Index(rank, b.action))
	})
	t := text.NewTable(w, "ACTION", "DOCUMENTS", "RESOURCES", "REASON")
	for _, l := range lines {
		list := names[l]
		if wide {
			for _, id := range list {
				t.Row(l.action, "1", id, l.reason)
			}
			continue
		}
		shown := strings.Join(list[:min(len(list), maxNames)], ", ")
		if more := len(list) - maxNames; more > 0 {
			shown += fmt.Sprintf(", and %d more", more)
		}
		t.Row(l.action, fmt.Sprint(len(list)), shown, l.reason)
	}
	t.Flush()
}

// writeImport writes the files to a new folder.
func writeImport(folder string, files []importer.File) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- the files with secrets are private
		return fmt.Errorf("--write %s: %w", folder, command.Reason(err))
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
		if err == nil {
			err = errors.New("the folder is not empty, and files of an earlier import would remain; give a new folder")
		}
		return fmt.Errorf("--write %s: %w", folder, command.Reason(err))
	}
	for _, f := range files {
		if err := writeImported(folder, &f); err != nil {
			return fmt.Errorf("--write %s: %w", folder, command.Reason(err))
		}
	}
	return nil
}

func writeImported(folder string, f *importer.File) error {
	path := filepath.Join(folder, filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data := f.Data
	if f.Resources != nil {
		var docs []json.RawMessage
		for _, r := range f.Resources {
			doc, err := resource.Marshal(r)
			if err != nil {
				return err
			}
			docs = append(docs, doc)
		}
		var b strings.Builder
		if err := text.YAMLStream(text.Verbatim(&b), docs); err != nil {
			return err
		}
		data = []byte(b.String())
	}
	if f.Private {
		return command.WriteSecret(path, data)
	}
	return os.WriteFile(path, data, 0o644) // #nosec G306 -- resources without secrets
}
