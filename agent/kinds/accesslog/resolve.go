package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// resolver finds what the backends of rules write to.
type resolver struct {
	c *policy.Context
	// warn notes what costs a backend; nil where nobody wants to know.
	warn func(k resource.Key, format string, args ...any)
}

func (r *resolver) warnf(k resource.Key, format string, args ...any) {
	if r.warn != nil {
		r.warn(k, format, args...)
	}
}

// sinks returns what a rule writes to. A backend that leads nowhere is left out. list is the list that the items of the
// rule stand in.
func (r *resolver) sinks(rule *policy.Rule, list string) []sink {
	conf, ok := rule.Conf.(*Conf)
	if !ok || conf.Backends == nil || len(rule.Origins) == 0 {
		return nil
	}
	// A later list replaces the earlier ones, and every item has one.
	from := rule.Origins[len(rule.Origins)-1]
	out := make([]sink, 0, len(*conf.Backends))
	for i := range *conf.Backends {
		b := &(*conf.Backends)[i]
		if k, _ := b.kind(); k != reference {
			out = append(out, b.sink())
			continue
		}
		s, reason := r.refer(b)
		if reason != "" {
			r.warnf(from.Policy.Key, "%s[%d].default.backends[%d]: %s: the backend is left out", list, from.Item, i, reason)
			continue
		}
		out = append(out, s)
	}
	return out
}

// refer follows a reference. It says why where it leads nowhere.
func (r *resolver) refer(b *Backend) (sink, string) {
	name, kinds := b.Name, []string{kindBackend, kindGlobalBackend}
	if b.Conf != nil {
		name, kinds = b.Conf.Name, []string{b.Conf.Kind}
	}
	var known []string
	for _, k := range kinds {
		list := r.c.Rules.Resources(k)
		found, reason := find(list, name)
		if found != nil || reason != "" {
			if spec, ok := specOf(found); ok {
				return spec.sink(), ""
			}
			return sink{}, reason
		}
		for _, res := range list {
			known = append(known, res.Name)
		}
	}
	where := strings.Join(kinds, " or ")
	if b.Conf == nil {
		if l := r.c.View.Spec.Logging.Backend(name); l != nil {
			return loggingSink(l), ""
		}
		where += ", and no backend of Mesh.logging,"
	}
	reason := fmt.Sprintf("there is no %s with the name %q", where, name)
	if len(known) > 0 {
		const most = 5
		more := ""
		if len(known) > most {
			known, more = known[:most], ", …"
		}
		reason += fmt.Sprintf(" (known here: %s%s)", strings.Join(known, ", "), more)
	}
	return sink{}, reason
}

func specOf(r *resource.Resource) (*BackendSpec, bool) {
	if r == nil {
		return nil, false
	}
	spec, ok := r.Spec.(*BackendSpec)
	return spec, ok
}

// find returns the resource with a name: that of the resource, else its name without the namespace, else its spec.name.
// Of several with one name none is meant, and the reason says so.
func find(list []*resource.Resource, name string) (*resource.Resource, string) {
	for _, by := range []struct {
		what string
		name func(*resource.Resource) string
	}{
		{"name", func(r *resource.Resource) string { return r.Name }},
		{"name without the namespace", (*resource.Resource).DisplayName},
		{"spec.name", func(r *resource.Resource) string {
			if s, ok := specOf(r); ok {
				return s.Name
			}
			return ""
		}},
	} {
		var found []string
		var last *resource.Resource
		for _, r := range list {
			if by.name(r) == name {
				found, last = append(found, r.Key.String()), r
			}
		}
		switch {
		case len(found) == 1:
			return last, ""
		case len(found) > 1:
			slices.Sort(found)
			return nil, fmt.Sprintf("%q is ambiguous, since it is the %s of %s: refer to one of them by the name of the resource, or rename it",
				name, by.what, strings.Join(found, " and "))
		}
	}
	return nil, ""
}

// loggingSink is a backend of Mesh.logging.
func loggingSink(b *resource.LoggingBackend) sink {
	s := sink{kind: sinkFile, text: b.Format, mesh: b.Name}
	if b.Type == resource.LoggingTCP {
		s.kind = sinkTCP
	}
	if b.Conf != nil {
		s.path, s.addr = b.Conf.Path, b.Conf.Address
	}
	return s
}

// legacySink is a backend of Mesh.logging as TrafficLog uses it: the lines for a collector carry its address, as those
// of the reference do.
func legacySink(b *resource.LoggingBackend) sink {
	s := loggingSink(b)
	if s.kind == sinkTCP {
		s.prefix = s.addr + ";"
	}
	return s
}
