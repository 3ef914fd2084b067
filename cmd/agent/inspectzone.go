package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/offline"
)

// inspectZoneCommand shows a zone proxy.
func (a *app) inspectZoneCommand(t offline.ProxyType, plural string) *cobra.Command {
	var files fileFlags
	var typ string
	kind := t.Kind()
	name := strings.ToLower(kind)
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: "Show the config of a " + kind + ", or its sync status",
		Long: `Shows the xDS config of the proxy of a ` + kind + ` (--type=config), which is made from all meshes, or which versions it
was sent, has acknowledged and rejected (--type=status). With -f, the config is computed from these resources alone; the
zone is then NEARSIDE_NODE_ZONE.`,
		Example:           "  nearside inspect " + name + " " + string(t) + "-1\n  nearside inspect " + name + " " + string(t) + "-1 --type=status",
		Args:              args(1, 1, "the NAME of a "+kind),
		ValidArgsFunction: a.completeNamesOf(plural),
	}
	files.add(cmd, "compute offline from these resources")
	choiceFlag(cmd, &choice{&typ, "--type", []string{typeConfig, typeStatus}}, "type", "", "what to show: ")
	var format string
	outputFlag(cmd, &format, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if typ == typeStatus {
			if len(files.paths) > 0 {
				return usagef("-f does not go with --type=status, which is about what the agent has sent")
			}
			p, err := a.client().ZoneProxy(cmd.Context(), plural, args[0])
			if err != nil {
				return err
			}
			return a.printProxy(p, format)
		}
		c, err := answer(a, &files, func() (*client.Config, error) {
			return a.client().ZoneConfig(cmd.Context(), plural, args[0])
		}, func(o *offline.Offline, zone string) (*client.Config, []string, error) {
			return o.ZoneConfig(zone, offline.ProxyRef{Type: t, Name: args[0]})
		})
		if err != nil {
			return err
		}
		return a.printConfig(c, format)
	}
	return cmd
}
