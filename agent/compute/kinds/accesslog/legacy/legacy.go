// Package legacy is TrafficLog, which MeshAccessLog replaces: its conf, its effect and its
// migration.
//
// Its policies name a backend of Mesh.logging, which writes the connections and requests that leave
// the proxy.
package legacy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "TrafficLog"

// Conf is the conf of a TrafficLog.
type Conf struct {
	Backend string `json:"backend,omitempty"` // of Mesh.logging; "" for its default
}

// Validate accepts any name: which backends there are is for the Mesh to say.
func (c *Conf) Validate(*resource.Validator) {}

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-logs", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) },
		}),
		ReplacedBy: []string{accesslog.Kind},
		Apply:      apply,
		Migrate:    migrate,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	if c.Rules.Kind(accesslog.Kind) != nil || !c.Rules.Legacy(kind) {
		return
	}
	accesslog.LogServices(c, d, func(service string) (resource.Key, *resource.LoggingBackend) {
		p := c.Rules.LegacyOutbound(kind, service)
		if p == nil {
			return resource.Key{}, nil
		}
		b, name := backendOf(c.View.Spec.Logging, p)
		switch {
		case b != nil:
		case name == "":
			c.Host.Warn(p.Key, "the policy names no backend, and logging of mesh %s has no defaultBackend: nothing is logged "+
				"by this policy", c.View.Name)
		default:
			c.Host.Warn(p.Key, "conf.backend: there is no backend %q in logging of mesh %s: nothing is logged by this policy",
				name, c.View.Name)
		}
		return p.Key, b
	})
}

// backendOf returns the backend that a policy names, nil when there is none, and its name, "" for
// none.
func backendOf(l *resource.Logging, p *resource.Resource) (*resource.LoggingBackend, string) {
	name := ""
	if l != nil {
		name = l.DefaultBackend
	}
	if conf := toolkit.LegacyConf[Conf](p); conf != nil {
		name = cmp.Or(conf.Backend, name)
	}
	return l.Backend(name), name
}

// migrate makes a MeshAccessLog of each TrafficLog, with the backend of Mesh.logging in it.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := in.Plan(policy.PlanOptions{Kinds: []string{accesslog.Kind},
		SupersededBy: toolkit.SupersededByAny(in, accesslog.Kind)})
	out := policy.Migration{Without: plan.Without, Changes: changes()}
	migrated := map[*policy.Unit]bool{}
	for _, u := range plan.Units {
		backends, why := backendsOf(in.Index.View.Spec.Logging, u.Policy)
		for _, w := range u.Weaker {
			if migrated[w] && why != "" { // it keeps what the weaker one would log from being logged
				policy.AddNote(&u.Notes, why+": the policy switches the log off where a weaker one would write it")
				backends, why = []accesslog.Backend{}, ""
			}
		}
		if why != "" {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: u.Policy.Key, Why: why})
			continue
		}
		migrated[u] = true
		policy.AddNote(&u.Notes, in.Reach(u))
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: accesslog.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: &u.Target, To: u.Items(&accesslog.Conf{Backends: &backends})},
		})
	}
	return out
}

// backendsOf returns where a TrafficLog writes, or why it writes nothing.
func backendsOf(l *resource.Logging, r *resource.Resource) ([]accesslog.Backend, string) {
	b, name := backendOf(l, r)
	switch {
	case name == "":
		return nil, "it logs nothing: it names no backend, and logging of the mesh has no defaultBackend"
	case b == nil:
		return nil, fmt.Sprintf("it logs nothing: there is no backend %q in logging of the mesh", name)
	}
	var format *accesslog.Format
	if b.Format != "" {
		if err := accesslog.CheckText(b.Format); err != nil {
			return nil, fmt.Sprintf("it logs nothing: the format of the backend %q: %v", name, err)
		}
		text, err := json.Marshal(map[string]string{"type": "Plain", "plain": b.Format})
		if err != nil {
			return nil, err.Error()
		}
		format = &accesslog.Format{Raw: resource.Raw{JSON: text}}
	}
	conf := toolkit.Or(b.Conf, resource.LoggingConf{})
	out := accesslog.Backend{Type: "File", File: &accesslog.File{Path: conf.Path, Format: format}}
	if b.Type == resource.LoggingTCP {
		out = accesslog.Backend{Type: "Tcp", TCP: &accesslog.TCP{Address: conf.Address, Format: format}}
	}
	var faults []resource.Fault
	if out.Check(resource.NewValidator("backends", &faults), true); len(faults) > 0 {
		return nil, fmt.Sprintf("a MeshAccessLog takes no such backend as %q: %s: %s",
			name, faults[0].Field, faults[0].Reason)
	}
	return []accesslog.Backend{out}, ""
}

// changes explains what MeshAccessLog writes otherwise than TrafficLog.
func changes() []policy.Change {
	const (
		at     = "Listener/*/filterChains/*/filters/*/typedConfig/accessLog/envoy.access_loggers.file*/typedConfig"
		line   = at + "/logFormat/textFormatSource/inlineString"
		prefix = "lines for a collector go through another FIFO and no longer begin with its address there; " +
			"the collector gets the same"
		past = "traffic past the mesh is logged with the direction " + accesslog.DirectionOutbound + ", which was " +
			accesslog.DirectionNone
	)
	return []policy.Change{
		{Path: at, Before: policy.Any, After: policy.Any, Same: true, Why: prefix,
			If: func(a, b any) bool { return sameLog(a, b, false) }},
		{Path: at, Before: policy.Any, After: policy.Any, Why: past, If: func(a, b any) bool { return sameLog(a, b, true) }},
		{Path: line, Before: policy.Any, After: policy.Any, Why: past,
			If: func(a, b any) bool { return sameLine(a, b, true) }},
	}
}

// sameLog compares two loggers of a collector by what it gets.
func sameLog(before, after any, past bool) bool {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	return isFIFO(a["path"]) && isFIFO(b["path"]) && sameLine(lineOf(a), lineOf(b), past)
}

func isFIFO(v any) bool {
	s, _ := v.(string)
	return accesslog.IsFIFO(s)
}

func lineOf(log map[string]any) any {
	format, _ := log["logFormat"].(map[string]any)
	text, _ := format["textFormatSource"].(map[string]any)
	return text["inlineString"]
}

// sameLine compares two lines but for the address before the first one, and with past for the
// direction.
func sameLine(before, after any, past bool) bool {
	a, ok := before.(string)
	b, is := after.(string)
	if !ok || !is || b == "" {
		return false
	}
	if past {
		a = strings.ReplaceAll(a, accesslog.DirectionNone, accesslog.DirectionOutbound)
	}
	address, found := strings.CutSuffix(a, b)
	return found && (address == "" || strings.HasSuffix(address, ";") && !strings.ContainsAny(address, " %"))
}
