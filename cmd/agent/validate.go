package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent"
)

// validation is the document of validate -o json.
type validation struct {
	Valid     bool         `json:"valid"`
	Files     int          `json:"files"`
	Resources int          `json:"resources"` // that are good
	Faults    agent.Faults `json:"faults"`
}

func (a *app) validateCommand() *cobra.Command {
	var f fileFlags
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR|-",
		Short: "Check resources without any agent",
		Long: `Decodes and validates resources as the agent does, without one. Every fault of every document is printed on
standard error with file, line, document, field path and remedy; exit code 65 when there is one.
With -o json, standard output has {"valid", "files", "resources", "faults": [{"file", "document", "line", "resource",
"field", "reason"}]}.`,
		Example: `  nearside validate -f resources/
  nearside get meshtimeouts -o yaml | nearside validate -f -
  nearside validate -R -f policies -o json | jq .faults`,
		Args: args(0, 0, "no arguments; name files with -f"),
	}
	f.add(cmd, "resources to check")
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		format, err := output()
		if err != nil {
			return err
		}
		texts, err := f.read(a.stdin)
		if err != nil {
			return err
		}
		o, faults := agent.ReadOffline(texts)
		if format == "json" {
			v := validation{Valid: len(faults) == 0, Files: len(texts), Resources: o.Len(), Faults: faults}
			if v.Faults == nil {
				v.Faults = agent.Faults{}
			}
			if err := printJSON(a.stdout, v); err != nil {
				return err
			}
		} else if len(faults) == 0 {
			fmt.Fprintf(a.stderr, "%d resources in %d files are valid\n", o.Len(), len(texts))
		}
		return faults.Err()
	}
	return cmd
}
