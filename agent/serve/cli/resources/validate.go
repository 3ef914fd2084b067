package resources

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Validation is the document of "validate -o json".
type Validation struct {
	Valid     bool            `json:"valid"`
	Files     int             `json:"files"`
	Resources int             `json:"resources"` // valid ones
	Faults    resource.Faults `json:"faults"`
	Warnings  resource.Faults `json:"warnings"` // warnings about documents and configs
	Proxies   int             `json:"proxies"`  // whose config was checked
	Findings  []api.Finding   `json:"findings"` // of the check, faults first
	Notes     []string        `json:"notes"`    // what could not be checked
}

func validateCommand(env *command.Env) *cobra.Command {
	var f command.FileFlags
	var noProxies, askEnvoy bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR|-",
		Short: "Validate resources without an agent",
		Long: `Decodes and validates resources as the agent does, without an agent. It prints every fault to
standard error with file, line, document, field path, and remedy.

If the documents are valid, the command computes and checks the configs of all Dataplanes among
them, as an agent does before it sends them. What Envoy would reject or could not use is a fault of
the document that causes it. A setting that Envoy would ignore or interpret differently is a
warning. NEARSIDE_NODE_ZONE sets the zone. --no-proxies skips this step.

With ENVOY_BIN in the environment, that Envoy also validates the configs, up to 64 of them. --envoy
uses the envoy on the PATH if ENVOY_BIN is unset. What it refuses is a fault. For this test, log
files are /dev/null, and certificates are placeholders.

With -o json, the document is {"valid", "files", "resources", "faults": [{"file", "document",
"line", "resource", "field", "reason"}], "warnings": [the same], "proxies", "findings", "notes"}.

The exit code is 65 if there is a fault.`,
		Example: `  nearside validate -f resources/
  nearside get meshtimeouts -o yaml | nearside validate -f -
  nearside validate -R -f policies -o json | jq .faults
  ENVOY_BIN=/usr/bin/envoy nearside validate -f resources/`,
		Args: command.Args(0, 0, "no arguments; select files with -f"),
	}
	f.Add(cmd, "resources to validate")
	cmd.Flags().BoolVar(&noProxies, "no-proxies", false, "validate only the documents, not the configs that they produce")
	cmd.Flags().BoolVar(&askEnvoy, "envoy", false, "also validate with the envoy on the PATH, if ENVOY_BIN is unset")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if noProxies && askEnvoy {
			return command.Usagef("--envoy checks configs, and --no-proxies skips them; give one of them")
		}
		input, err := f.Read(env.Stdin)
		if err != nil {
			return err
		}
		o, faults := offline.Read(input)
		faults = append(faults, o.Refused()...)
		if err := command.ReachByEnv(env, o); err != nil {
			return err
		}
		if len(faults) == 0 && o.Len() == 0 {
			return command.ErrNothing
		}
		v := &offline.Verified{Findings: []api.Finding{}}
		if len(faults) == 0 && !noProxies {
			if v, err = verify(cmd.Context(), env, o, askEnvoy); err != nil {
				return err
			}
			faults = v.Faults
		}
		env.Warn(text.Texts(v.Warnings))
		for _, n := range v.Notes {
			text.Printf(env.Stderr, "note: %s\n", n)
		}
		if command.IsDocument(*format) {
			doc := Validation{Valid: len(faults) == 0, Files: len(input), Resources: o.Len(),
				Faults:   append(resource.Faults{}, faults...),
				Warnings: append(resource.Faults{}, v.Warnings...), Proxies: v.Proxies, Findings: v.Findings,
				Notes: append([]string{}, v.Notes...)}
			if _, err := command.Printed(env, *format, doc); err != nil {
				return err
			}
		} else if len(faults) == 0 {
			line := fmt.Sprintf("valid: %s in %s", plural.Count(o.Len(), "resource"), plural.Count(len(input), "file"))
			switch {
			case noProxies:
			case v.Proxies == 0:
				line += "; no config was checked, because there is no Dataplane with its Mesh"
			default:
				line += " and the configs of " + plural.Count(v.Proxies, "proxy")
			}
			text.Println(env.Stderr, line)
		}
		return faults.Err()
	}
	return cmd
}

// verify checks the configs that the resources produce.
func verify(ctx context.Context, env *command.Env, o *offline.Offline, askEnvoy bool) (*offline.Verified, error) {
	with := offline.VerifyOptions{Zone: env.Getenv("NEARSIDE_NODE_ZONE")}
	var err error
	if with.Envoy, err = envoybin.Find(env.Getenv, askEnvoy); err != nil {
		return nil, err
	}
	var done func()
	with.Progress, done = command.Progress(env, "checking the configs of proxies")
	defer done()
	return o.Verify(ctx, with)
}
