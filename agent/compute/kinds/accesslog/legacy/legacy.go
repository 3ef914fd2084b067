// Package legacy implements TrafficLog, which MeshAccessLog replaces: its conf, effect, and
// migration.
//
// TrafficLog policies refer to a backend of Mesh.logging for outbound connections and requests.
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
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "TrafficLog"

// Conf is the conf of a TrafficLog.
type Conf struct {
	Backend string `json:"backend,omitempty"` // of Mesh.logging. Default its defaultBackend
}

// Validate accepts any name: only the mesh defines which backends exist.
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
			c.Host.Warn(p.Key, "the policy has no effect: it names no backend, and logging of mesh %s has no defaultBackend",
				c.View.Name)
		default:
			c.Host.Warn(p.Key, "the policy has no effect: logging of mesh %s has no backend %q (conf.backend)",
				c.View.Name, name)
		}
		return p.Key, b
	})
}

// backendOf returns the backend of a policy, or nil, and the backend's name, or "".
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

// migrate returns a MeshAccessLog for each TrafficLog, with the backend of Mesh.logging.
func migrate(in *policy.MigrateInput) policy.Migration {
	plan := successor.NewPlan(in, successor.PlanOptions{Kinds: []string{accesslog.Kind},
		SupersededBy: toolkit.SupersededByAny(in, accesslog.Kind)})
	out := policy.Migration{Without: plan.Without, Changes: changes()}
	migrated := map[*successor.Unit]bool{}
	for _, u := range plan.Units {
		backends, why := backendsOf(in.Index.View.Spec.Logging, u.Policy)
		for _, w := range u.Weaker {
			if migrated[w] && why != "" { // overrides a policy with lower precedence that logs
				successor.AddNote(&u.Notes, why+"; it disables the log where a policy with lower precedence would write it")
				backends, why = []accesslog.Backend{}, ""
			}
		}
		if why != "" {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: u.Policy.Key, Why: why})
			continue
		}
		migrated[u] = true
		successor.AddNote(&u.Notes, successor.Reach(in, u))
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: accesslog.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: &u.Target, To: u.Items(&accesslog.Conf{Backends: &backends})},
		})
	}
	return out
}

// backendsOf returns the backends of a TrafficLog, or the reason why it has none.
func backendsOf(l *resource.Logging, r *resource.Resource) ([]accesslog.Backend, string) {
	b, name := backendOf(l, r)
	switch {
	case name == "":
		return nil, "the policy has no effect: it names no backend, and logging of the mesh has no defaultBackend"
	case b == nil:
		return nil, fmt.Sprintf("the policy has no effect: logging of the mesh has no backend %q", name)
	}
	var format *accesslog.Format
	if b.Format != "" {
		if err := accesslog.CheckText(b.Format); err != nil {
			return nil, fmt.Sprintf("the policy has no effect: format of backend %q: %v", name, err)
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
		return nil, fmt.Sprintf("the backend %q is invalid for a MeshAccessLog: %s: %s",
			name, faults[0].Field, faults[0].Reason)
	}
	return []accesslog.Backend{out}, ""
}

// changes explains the differences between the config of MeshAccessLog and TrafficLog.
func changes() []policy.Change {
	const (
		at     = "Listener/*/filterChains/*/filters/*/typedConfig/accessLog/envoy.access_loggers.file*/typedConfig"
		line   = at + "/logFormat/textFormatSource/inlineString"
		prefix = "lines for a collector use another FIFO and do not begin with its address there; " +
			"the collector receives the same lines"
		external = "traffic to addresses outside the mesh is logged with direction " + accesslog.DirectionOutbound +
			" instead of " + accesslog.DirectionNone
	)
	return []policy.Change{
		{Path: at, Before: policy.Any, After: policy.Any, Same: true, Why: prefix,
			If: func(a, b any) bool { return sameLog(a, b, false) }},
		{Path: at, Before: policy.Any, After: policy.Any, Why: external,
			If: func(a, b any) bool { return sameLog(a, b, true) }},
		{Path: line, Before: policy.Any, After: policy.Any, Why: external,
			If: func(a, b any) bool { return sameLine(a, b, true) }},
	}
}

// sameLog reports whether two loggers send the same lines to a collector.
func sameLog(before, after any, external bool) bool {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	return isFIFO(a["path"]) && isFIFO(b["path"]) && sameLine(lineOf(a), lineOf(b), external)
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

// sameLine compares two lines, ignoring the address before the first one and, if external is true,
// the direction.
func sameLine(before, after any, external bool) bool {
	a, ok := before.(string)
	b, is := after.(string)
	if !ok || !is || b == "" {
		return false
	}
	if external {
		a = strings.ReplaceAll(a, accesslog.DirectionNone, accesslog.DirectionOutbound)
	}
	address, found := strings.CutSuffix(a, b)
	return found && (address == "" || strings.HasSuffix(address, ";") && !strings.ContainsAny(address, " %"))
}
