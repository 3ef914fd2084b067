package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) inspectServicesCommand() *cobra.Command {
	var all bool
	var files fileFlags
	cmd := &cobra.Command{
		Use:   "services",
		Short: "List the services of a mesh with their addresses, names and endpoints",
		Long: `Lists every service of a mesh as this node sees it: the values of kuma.io/service (ServiceTag), MeshServices, those that
are made of tags among them (they are in no list of resources), MeshExternalServices and MeshMultiZoneServices. ENDPOINTS
is how many take traffic, of how many, for each port. HOSTNAMES are those that a service has. Below the table stands what
services lack, and why.

With -f, the answer is computed from these resources alone, without any agent and by the same code; the zone is then
NEARSIDE_NODE_ZONE.`,
		Example: "  nearside inspect services\n  nearside inspect services -A -o wide\n" +
			"  nearside inspect services -f resources/ -o json",
		Args: args(0, 0, "no arguments"),
	}
	a.meshFlag(cmd)
	files.add(cmd, "compute offline from these resources")
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list those of all meshes")
	format := outputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		mesh := a.mesh
		if all {
			mesh = ""
		}
		if all && len(files.paths) > 0 {
			return usagef("-f computes one mesh; leave -A out and name the mesh with -m")
		}
		list, err := answer(a, &files, func() ([]client.Service, error) {
			return a.client().Services(cmd.Context(), mesh, "", "")
		}, func(o *offline.Offline, zone string) ([]client.Service, []string, error) {
			list, err := o.Services(zone, mesh)
			return list, nil, err
		})
		if err != nil {
			return err
		}
		if ok, err := a.printed(*format, serviceList{len(list), list}); ok {
			return err
		}
		if *format == "name" {
			for _, s := range list {
				printLine(a.stdout, typeAndName(s.Kind, s.Name))
			}
			return nil
		}
		return a.serviceTable(list, *format == "wide")
	}
	return cmd
}

// serviceList is the whole list, as the pages of the API have it.
type serviceList struct {
	Total int              `json:"total"`
	Items []client.Service `json:"items"`
}

func (a *app) serviceTable(list []client.Service, wide bool) error {
	headers := []string{"MESH", "KIND", "NAME", "PORTS", "ENDPOINTS", "VIPS", "HOSTNAMES"}
	if wide {
		headers = append(headers, "CLUSTERS", "LABELS")
	}
	t := newTable(a.stdout, headers...)
	for _, s := range list {
		kind := s.Kind
		if s.Derived {
			kind += " (derived)"
		}
		cells := []string{s.Mesh, kind, s.Name, servicePorts(&s), serviceEndpoints(&s), serviceVIPs(&s), serviceNames(&s)}
		if wide {
			clusters := each(s.Ports, func(p client.ServicePort) string { return p.Cluster })
			cells = append(cells, strings.Join(clusters, ","), pairs(s.Labels))
		}
		t.row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	a.serviceReasons(list)
	return nil
}

// serviceReasons writes what is not as it was to be.
func (a *app) serviceReasons(list []client.Service) {
	first := true
	say := func(s *client.Service, text string) {
		if first {
			printLine(a.stdout)
			first = false
		}
		printf(a.stdout, "%s/%s/%s: %s\n", s.Kind, s.Mesh, s.Name, oneLine(text))
	}
	for i := range list {
		s := &list[i]
		for _, r := range s.Reasons {
			say(s, r)
		}
		for _, h := range s.Hostnames {
			if h.Generated || h.Reason == client.HostnameCollision && len(s.Reasons) > 0 { // which are among the reasons
				continue
			}
			what := "no hostname"
			if h.Hostname != "" {
				what = "not the hostname " + h.Hostname
			}
			if h.Generator != "" {
				what += " by " + h.Generator
			}
			say(s, what+": "+h.Message)
		}
	}
}

// servicePorts writes the ports of a service with their names and protocols.
func servicePorts(s *client.Service) string {
	return strings.Join(each(s.Ports, func(p client.ServicePort) string {
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}), ",")
}

// serviceEndpoints writes ready/total, once where it is the same for all ports.
func serviceEndpoints(s *client.Service) string {
	out := each(s.Ports, func(p client.ServicePort) string { return fmt.Sprintf("%d/%d", p.Ready, p.Total) })
	if distinct := slices.Compact(slices.Clone(out)); len(distinct) == 1 {
		return distinct[0]
	}
	return strings.Join(out, ",")
}

func serviceVIPs(s *client.Service) string { return strings.Join(texts(s.VIPs), ",") }

// serviceNames writes the hostnames that a service has.
func serviceNames(s *client.Service) string {
	var out []string
	for _, h := range s.Hostnames {
		if h.Generated {
			out = append(out, h.Hostname)
		}
	}
	return strings.Join(out, ",")
}

// isService reports whether a kind is one of services, of which wide tables show what was computed.
func isService(k client.Kind) bool {
	return k.Kind == "MeshService" || k.Kind == "MeshExternalService" || k.Kind == "MeshMultiZoneService"
}

// serviceColumns adds what the agent has computed of services: addresses, names and endpoints.
func (a *app) serviceColumns(ctx context.Context, kind client.Kind, items []client.Item,
	own []column) ([]column, error) {
	mesh, name, err := onlyOne(items)
	if err != nil {
		return nil, err
	}
	list, err := a.client().Services(ctx, mesh, kind.Kind, name)
	if err != nil {
		return nil, err
	}
	by := make(map[string]*client.Service, len(list))
	for i := range list {
		by[list[i].Mesh+"/"+list[i].Name] = &list[i]
	}
	for _, c := range []struct {
		header string
		cell   func(*client.Service) string
	}{{"ENDPOINTS", serviceEndpoints}, {"VIPS", serviceVIPs}, {"HOSTNAMES", serviceNames}} {
		own = append(own, column{c.header, func(d *document) string {
			if s := by[d.Mesh+"/"+d.Name]; s != nil {
				return c.cell(s)
			}
			return "" // written since the agent last looked
		}})
	}
	return own, nil
}
