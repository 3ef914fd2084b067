package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// validation is the document of validate -o json.
type validation struct {
	Valid     bool              `json:"valid"`
	Files     int               `json:"files"`
	Resources int               `json:"resources"` // that are good
	Faults    offline.Faults    `json:"faults"`
	Warnings  offline.Faults    `json:"warnings"` // for people, of the documents and of the configs
	Proxies   int               `json:"proxies"`  // whose config was checked
	Findings  []offline.Finding `json:"findings"` // of the check, those that are faults first
	Notes     []string          `json:"notes"`    // what could not be checked
}

func (a *app) validateCommand() *cobra.Command {
	var f fileFlags
	var noProxies, askEnvoy bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR|-",
		Short: "Check resources without any agent",
		Long: `Decodes and validates resources as the agent does, without one. Every fault of every document is printed on
standard error with file, line, document, field path and remedy; exit code 65 when there is one.

Where the documents are good, the configs of all Dataplanes among them are made and checked as an agent does before it
sends them: what Envoy would reject or could not use is a fault of the document that causes it. A setting that Envoy would
ignore or apply with another meaning is a warning. The zone is NEARSIDE_NODE_ZONE. --no-proxies leaves this out.

With ENVOY_BIN in the environment, that Envoy loads the configs too, in its validate mode, up to 64 of them; --envoy takes
the envoy on the PATH where ENVOY_BIN is not set. What it refuses is a fault. Log files are /dev/null for it, and
certificates are placeholders.

With -o json, standard output has {"valid", "files", "resources", "faults": [{"file", "document", "line", "resource",
"field", "reason"}], "warnings": [the same], "proxies", "findings", "notes"}.`,
		Example: `  nearside validate -f resources/
  nearside get meshtimeouts -o yaml | nearside validate -f -
  nearside validate -R -f policies -o json | jq .faults
  ENVOY_BIN=/usr/bin/envoy nearside validate -f resources/`,
		Args: args(0, 0, "no arguments; name files with -f"),
	}
	f.add(cmd, "resources to check")
	cmd.Flags().BoolVar(&noProxies, "no-proxies", false, "check the documents alone, and no config that they make")
	cmd.Flags().BoolVar(&askEnvoy, "envoy", false, "also ask the envoy on the PATH, where ENVOY_BIN names none")
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if noProxies && askEnvoy {
			return usagef("--envoy checks configs, and --no-proxies skips them; give one of the two")
		}
		input, err := f.read(a.stdin)
		if err != nil {
			return err
		}
		o, faults := offline.Read(input)
		if err := a.reachable(o); err != nil {
			return err
		}
		if len(faults) == 0 && o.Len() == 0 {
			return errNothing
		}
		v := &offline.Verified{Findings: []offline.Finding{}}
		if len(faults) == 0 && !noProxies {
			if v, err = a.verify(cmd.Context(), o, askEnvoy); err != nil {
				return err
			}
			faults = v.Faults
		}
		a.warn(texts(v.Warnings))
		for _, n := range v.Notes {
			printf(a.stderr, "note: %s\n", n)
		}
		if isDocument(*format) {
			doc := validation{Valid: len(faults) == 0, Files: len(input), Resources: o.Len(),
				Faults:   append(offline.Faults{}, faults...),
				Warnings: append(offline.Faults{}, v.Warnings...), Proxies: v.Proxies, Findings: v.Findings,
				Notes: append([]string{}, v.Notes...)}
			if _, err := a.printed(*format, doc); err != nil {
				return err
			}
		} else if len(faults) == 0 {
			line := fmt.Sprintf("valid: %s in %s", counted(o.Len(), "resource"), counted(len(input), "file"))
			switch {
			case noProxies:
			case v.Proxies == 0:
				line += "; no config was checked, since there is no Dataplane of a mesh among them"
			default:
				line += " and the configs of " + counted(v.Proxies, "proxy")
			}
			printLine(a.stderr, line)
		}
		return faults.Err()
	}
	return cmd
}

// verify checks the configs that resources make.
func (a *app) verify(ctx context.Context, o *offline.Offline, askEnvoy bool) (*offline.Verified, error) {
	with := offline.VerifyOptions{Zone: a.getenv("NEARSIDE_NODE_ZONE")}
	var err error
	if with.Envoy, err = envoybin.Find(a.getenv, askEnvoy); err != nil {
		return nil, err
	}
	var done func()
	with.Progress, done = a.progress("checking the configs of proxies")
	defer done()
	return o.Verify(ctx, with)
}
