package node

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func debugCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "debug",
		Short: "Collect diagnostics of the agent",
		Long: `Collects diagnostics of the agent itself. For the behavior of an Envoy, use "nearside explain" and
"nearside inspect".`,
		Example: "  nearside debug bundle\n  nearside debug loglevel debug\n" +
			"  nearside debug pprof cpu --seconds 30 > cpu.pprof",
	}, debugBundleCommand(env), debugLogLevelCommand(env), debugPprofCommand(env))
}

func debugPprofCommand(env *command.Env) *cobra.Command {
	seconds := 10
	cmd := &cobra.Command{
		Use:   "pprof PROFILE",
		Short: "Print a profile of the agent for go tool pprof",
		Long: `Prints a profile of the agent for "go tool pprof". PROFILE is cpu, heap, allocs, goroutine,
threadcreate, block, or mutex. A CPU profile takes --seconds.`,
		Example: "  nearside debug pprof heap > heap.pprof\n" +
			"  nearside debug pprof cpu > cpu.pprof && go tool pprof -top cpu.pprof",
		Args: command.Args(1, 1, "one profile: cpu, heap, allocs, goroutine, threadcreate, block, or mutex"),
	}
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "seconds of a cpu profile, at most 30")
	cmd.RunE = func(cmd *cobra.Command, list []string) error {
		c := env.Quick(time.Duration(seconds)*time.Second + 30*time.Second)
		out, err := c.Profile(cmd.Context(), list[0], seconds)
		if err != nil {
			return err
		}
		_, err = text.Verbatim(env.Stdout).Write(out)
		return err
	}
	return cmd
}

func debugLogLevelCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "loglevel [LEVEL]",
		Short: "Print or change the agent's log level",
		Long: `Prints the log level of the agent, or changes it to debug, info, warn, or error. The change lasts
until the agent restarts or reloads its config (systemctl reload nearside).`,
		Example: "  nearside debug loglevel\n  nearside debug loglevel debug",
		Args:    command.Args(0, 1, "at most one level: debug, info, warn, or error"),
		RunE: func(cmd *cobra.Command, list []string) error {
			if len(list) == 1 {
				levels := []string{"debug", "info", "warn", "error"}
				if !slices.Contains(levels, list[0]) {
					return command.Usagef("unknown level %q; use one of %s", list[0], strings.Join(levels, ", "))
				}
				if err := env.Client().SetLogLevel(cmd.Context(), list[0]); err != nil {
					return err
				}
			}
			level, err := env.Client().LogLevel(cmd.Context())
			if err == nil {
				text.Println(env.Stdout, level)
			}
			return err
		},
	}
}

func debugBundleCommand(env *command.Env) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write status, resources, metrics, and profiles to one file",
		Long: `Writes a .tar.gz with diagnostics: version, status, checks, proxies, services, pool members, DNS,
access-log streams, roles, metrics, all resources with their history, the configs of proxies, the
effective config of the agent, the end of its log (256 KiB), and two profiles. Keys and tokens are
redacted. Names, addresses, and users are not, so review the file before you share it.

It has the configs of at most 50 proxies and the history of at most 500 resources, 32 MiB of each;
omitted.txt in the bundle lists the others. If this command runs on the agent's node and may read the
journal, journal.txt has the last lines of the units, also of earlier runs.

If an item cannot be collected, errors.txt in the bundle has the reason, and the exit code is 1.
Only you can read the file. -O - writes it to standard output.`,
		Example: "  nearside debug bundle\n  nearside debug bundle -O - | tar -tz",
	}
	cmd.Flags().StringVarP(&file, "output-file", "O", "",
		"file to write, which must not exist (default: nearside-TIME.tar.gz)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, missing, err := bundle(cmd.Context(), env)
		if err != nil {
			return err
		}
		if file == "-" {
			_, err = text.Verbatim(env.Stdout).Write(out)
		} else {
			if file == "" {
				file = "nearside-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			err = writeNew(file, out)
		}
		if err != nil {
			return err
		}
		if file != "-" {
			text.Printf(env.Stdout, "%s: %d bytes; review it before you share it\n", file, len(out))
		}
		if missing > 0 {
			return command.Exit(command.ExitFailed,
				errors.New(plural.Count(missing, "item")+" could not be collected; errors.txt in the bundle says why"))
		}
		return nil
	}
	return cmd
}

// writeNew creates a file, and fails if it exists.
func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
