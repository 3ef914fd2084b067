package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/offline"
)

// inspectZoneCommand shows a proxy at the border of a zone.
func (a *app) inspectZoneCommand(t offline.ProxyType, plural string) *cobra.Command {
	var files fileFlags
	var typ string
	kind := t.Kind()
	name := strings.ToLower(kind)
	types := []string{typeConfig, typeStatus}
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: "Show what the proxy of a " + kind + " gets, or how far it is with it",
		Long: `Shows the xDS config of the proxy of a ` + kind + ` (--type=config), which is made from all meshes, or which versions it
was sent, has acknowledged and rejected (--type=status). With -f, the config is computed from these resources alone; the
zone is then NEARSIDE_NODE_ZONE.`,
		Example:           "  nearside inspect " + name + " " + string(t) + "-1\n  nearside inspect " + name + " " + string(t) + "-1 --type=status",
		Args:              args(1, 1, "the NAME of a "+kind),
		ValidArgsFunction: a.completeNamesOf(plural),
	}
	files.add(cmd, "compute offline from these resources")
	cmd.Flags().StringVar(&typ, "type", typeConfig, "what to show: "+strings.Join(types, ", "))
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(types, cobra.ShellCompDirectiveNoFileComp))
	output := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := output()
		if err != nil {
			return err
		}
		switch typ {
		case typeConfig:
			var c *client.Config
			if len(files.paths) > 0 {
				o, err := a.offline(&files)
				if err != nil {
					return err
				}
				var warnings []string
				if c, warnings, err = o.ZoneConfig(a.getenv("NEARSIDE_NODE_ZONE"), offline.ProxyRef{Type: t, Name: args[0]}); err != nil {
					return err
				}
				a.warn(warnings)
			} else if c, err = a.client().ZoneConfig(cmd.Context(), plural, args[0]); err != nil {
				return err
			}
			return a.printConfig(c, format)
		case typeStatus:
			if len(files.paths) > 0 {
				return usagef("-f does not go with --type=status, which is about what the agent has sent")
			}
			p, err := a.client().ZoneProxy(cmd.Context(), plural, args[0])
			if err != nil {
				return err
			}
			return a.printProxy(p, format)
		}
		return usagef("--type %q is not possible; one of %s", typ, strings.Join(types, ", "))
	}
	return cmd
}
