package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Verbs of requests.
const (
	VerbGet     = "get"     // one resource, with its history
	VerbList    = "list"    // many resources
	VerbInspect = "inspect" // results of the agent: proxy configs, explanations, diffs, status, metrics
	VerbCreate  = "create"
	VerbUpdate  = "update"
	VerbDelete  = "delete"
	// VerbReadLogs reads lines of log files over the API: of access logs on Dataplane, and of the
	// audit log, the DNS query log, and receivers on [KindAgent].
	VerbReadLogs = "read-logs"
)

// Verbs lists all verbs.
var Verbs = [...]string{VerbGet, VerbList, VerbInspect, VerbCreate, VerbUpdate, VerbDelete, VerbReadLogs}

// Role is an item of api.roles. It grants permissions to its subjects.
type Role struct {
	Name     string    `json:"name" required:"" check:"name" max:"63" doc:"Name of the role."`
	Template string    `json:"template,omitempty" oneOf:",mesh-operator,observability,viewer,kubernetes" doc:"Built-in role whose permissions this role includes."`
	Subjects []Matcher `json:"subjects,omitempty" max:"256" doc:"Subjects of the role: items with user, group, uid, cgroup, or token."`
	Allow    []Allow   `json:"allow,omitempty" max:"256" doc:"Permissions of the role: items with kinds, meshes, names, verbs, and features."`
}

// Allow is a permission of a role. An empty list of meshes or names means all of them.
type Allow struct {
	Kinds    []string `json:"kinds" required:"" max:"256" doc:"Kinds of resources, and Agent for the agent itself; * means all, including Agent, and ** all except Agent."`
	Meshes   []string `json:"meshes,omitempty" max:"256" doc:"Meshes; * matches any characters. Empty: all, and kinds of no mesh."`
	Names    []string `json:"names,omitempty" max:"256" doc:"Names of resources; * matches any characters. Empty: all."`
	Verbs    []string `json:"verbs" required:"" max:"16" doc:"get, list, inspect, create, update, delete, read-logs; * means all."`
	Features []string `json:"features,omitempty" max:"16" doc:"Dangerous features that written resources may use: patch-unsafe, log-path. Empty: all if kinds contains *, otherwise none."`
}

// Templates of roles. They have no subjects until a role in the config, or an item of
// resources.dir, refers to them.
const (
	TemplateOperator      = "mesh-operator"
	TemplateObservability = "observability"
	TemplateViewer        = "viewer"
	TemplateKubernetes    = "kubernetes"
)

// Template returns the permissions of a built-in role, or nil. A mesh operator may do everything.
// The observability role reads all resources and results, but not [KindAgent], and writes
// access-log backends. A viewer reads everything. The kubernetes role only writes what a watcher of
// pods and Services derives from them.
func Template(name string) []Allow {
	read := Allow{Kinds: everything, Verbs: []string{VerbGet, VerbList, VerbInspect}}
	switch name {
	case TemplateOperator:
		return []Allow{{Kinds: everything, Verbs: everything}}
	case TemplateObservability:
		read.Kinds = []string{"**"}
		return []Allow{read, {Kinds: []string{"MeshAccessLogBackend", "GlobalAccessLogBackend"},
			Verbs: []string{VerbCreate, VerbUpdate, VerbDelete}}}
	case TemplateViewer:
		return []Allow{read}
	case TemplateKubernetes:
		return []Allow{{Kinds: []string{"Dataplane", "MeshService"}, Verbs: []string{VerbCreate, VerbUpdate, VerbDelete}}}
	}
	return nil
}

// Action is the action that a peer requests. Kind is "" for an action that is not about a kind,
// such as reading the agent's status. Mesh is "" for kinds without a mesh and for all meshes. Name
// is "" for all names.
// Features are those that the written resource needs.
type Action struct {
	Verb, Kind, Mesh, Name string
	Features               Features
}

// ActionOn returns the action of a verb on a resource. A Mesh belongs to the mesh that it defines,
// so that permissions for one mesh include it.
func ActionOn(verb string, k resource.Key) Action {
	a := Action{Verb: verb, Kind: k.Kind, Mesh: k.Mesh, Name: k.Name}
	if k.Kind == "Mesh" {
		a.Mesh = k.Name
	}
	return a
}

// String formats the action: "update MeshTimeout default/slow".
func (a Action) String() string {
	out := a.Verb
	if a.Kind != "" {
		out += " " + a.Kind
	}
	switch {
	case a.Mesh != "":
		out += " " + a.Mesh + "/" + cmp.Or(a.Name, "*")
	case a.Name != "":
		out += " " + a.Name
	}
	if a.Features != 0 {
		out += " with " + a.Features.String()
	}
	return out
}

// Writes reports whether the action modifies a resource.
func (a Action) Writes() bool {
	return a.Verb == VerbCreate || a.Verb == VerbUpdate || a.Verb == VerbDelete
}

// privileged reports whether an action requires more than access to the API, without roles.
func (a Action) privileged() bool { return a.Writes() || a.Verb == VerbReadLogs }

// covers reports whether a permission allows an action. With some, an action without mesh or name
// is allowed if the permission allows it for any mesh and name.
func (a *Allow) covers(act Action, some bool) bool {
	in := func(patterns []string, s string) bool {
		return len(patterns) == 0 || some && s == "" || anyGlob(patterns, s)
	}
	return anyGlob(a.Verbs, act.Verb) && a.has(act.Kind) && in(a.Meshes, act.Mesh) && in(a.Names, act.Name) &&
		act.Features&^a.Granted() == 0
}

// ForbiddenError is the error for a peer that lacks a permission.
type ForbiddenError struct {
	Who    string
	Action Action
	Reason string   // without roles: the requirement for writing
	Roles  []string // roles that would allow it
	Danger string   // why the action needs a feature; "" if it does not matter
}

// Error names the peer, the action, and the roles that would allow it.
func (e *ForbiddenError) Error() string {
	out := fmt.Sprintf("%s may not %s", e.Who, e.Action)
	switch {
	case e.Reason != "":
		out += ": " + e.Reason
	case len(e.Roles) > 0:
		out += "; the roles that allow it: " + strings.Join(e.Roles, ", ")
	default:
		out += "; no role of api.roles allows it"
	}
	if e.Danger != "" {
		out += "; " + e.Danger
	}
	return out
}

// RoleOptions configures [NewRoles].
type RoleOptions struct {
	Roles    []Role // nil: see [Roles.Can]
	AgentUID uint32
	GID      int    // of the API socket; negative if it has none
	Group    string // name of the group, for messages
}

// Roles decides which actions on resources a peer may take. It is safe for concurrent use.
type Roles struct {
	o     RoleOptions
	roles []role
}

type role struct {
	name     string
	subjects []matcher
	allow    []Allow
}

// NewRoles resolves the subjects of the roles. It fails if two roles have the same name, a role has
// the name of a template, or a subject or permission is empty.
func NewRoles(o RoleOptions) (*Roles, error) {
	out := &Roles{o: o}
	var errs []error
	seen := map[string]bool{}
	for i, r := range o.Roles {
		at := fmt.Sprintf("api.roles[%d]", i)
		switch {
		case seen[r.Name]:
			errs = append(errs,
				fmt.Errorf("%s.name: %q is already the name of another role; role names must be unique", at, r.Name))
		case Template(r.Name) != nil && r.Template != r.Name:
			errs = append(errs,
				fmt.Errorf("%s.name: %q is a built-in role; use it as template, or choose another name", at, r.Name))
		case r.Template == "" && len(r.Allow) == 0:
			errs = append(errs, fmt.Errorf("%s: the role allows nothing; set template or allow", at))
		}
		seen[r.Name] = true
		to := role{name: r.Name, allow: append(Template(r.Template), r.Allow...)}
		for j, s := range r.Subjects {
			m, err := s.resolve()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.subjects[%d]: %w", at, j, err))
			}
			to.subjects = append(to.subjects, m)
		}
		for j, a := range r.Allow {
			for _, v := range a.Verbs {
				if v != "*" && !slices.Contains(Verbs[:], v) {
					errs = append(errs,
						fmt.Errorf("%s.allow[%d].verbs: %.64q is not a verb; use one of %s, *", at, j, v, strings.Join(Verbs[:], ", ")))
				}
			}
			if _, err := ParseFeatures(a.Features...); err != nil {
				errs = append(errs, fmt.Errorf("%s.allow[%d].features: %w", at, j, err))
			}
		}
		out.roles = append(out.roles, to)
	}
	return out, errors.Join(errs...)
}

// Missing lists the subjects that match no peer because their user or group does not exist.
func (r *Roles) Missing() (out []string) {
	for i, x := range r.roles {
		for j, s := range x.subjects {
			if s.missing != "" {
				out = append(out, fmt.Sprintf("api.roles[%d].subjects[%d]: %s", i, j, s.missing))
			}
		}
	}
	return out
}

// AsksCgroup reports whether a role depends on the cgroups of peers.
func (r *Roles) AsksCgroup() bool {
	return slices.ContainsFunc(r.roles, func(x role) bool {
		return slices.ContainsFunc(x.subjects, func(m matcher) bool { return m.keys.Cgroup != "" })
	})
}

// Operator reports whether a peer may do everything regardless of roles: root and the agent's user.
func (r *Roles) Operator(p *Peer) bool { return p.Root() || p.is(r.o.AgentUID) }

// List returns the roles of the config with the permissions of their templates; nil without
// api.roles.
func (r *Roles) List() []Role {
	out := slices.Clone(r.o.Roles)
	for i := range out {
		out[i].Allow = r.roles[i].allow
	}
	return out
}

// Of returns the names of a peer's roles, in the order of the config.
func (r *Roles) Of(p *Peer) (out []string) {
	for i := range r.roles {
		if r.roles[i].has(p) {
			out = append(out, r.roles[i].name)
		}
	}
	return out
}

func (x *role) has(p *Peer) bool {
	return slices.ContainsFunc(x.subjects, func(m matcher) bool { return m.matches(p) })
}

func (x *role) covers(a Action, some bool) bool {
	return slices.ContainsFunc(x.allow, func(l Allow) bool { return l.covers(a, some) })
}

// Can returns nil if the peer may take an action, else a [ForbiddenError].
//
// Root and the agent's user may do everything. Other peers may do what one of their roles allows.
// Without roles, every peer that the socket admits, or that has a token, may read, except log
// files, and members of the socket's group may write and read log files.
func (r *Roles) Can(p *Peer, a Action) error { return r.can(p, a, false) }

// CanSome is like [Roles.Can] for an action without mesh or name: it returns nil if the peer may
// take the action for any mesh or name.
func (r *Roles) CanSome(p *Peer, a Action) error { return r.can(p, a, true) }

// May is like [Roles.Can] but returns a boolean. It is for lists, because the error of Can looks up
// a user.
func (r *Roles) May(p *Peer, a Action) bool { return r.may(p, a, false) }

func (r *Roles) may(p *Peer, a Action, some bool) bool {
	switch {
	case r.Operator(p):
		return true
	case r.o.Roles != nil:
		return slices.ContainsFunc(r.roles, func(x role) bool { return x.covers(a, some) && x.has(p) })
	case p.Local:
		return !a.privileged() || p.in(r.o.GID)
	}
	return p.Token != nil && (!a.privileged() || p.Token.Subject == StaticSubject)
}

func (r *Roles) can(p *Peer, a Action, some bool) error {
	if r.may(p, a, some) {
		return nil
	}
	e := &ForbiddenError{Who: p.Account(), Action: a}
	if r.o.Roles == nil {
		switch {
		case !p.Local && p.Token == nil:
			e.Reason = "a token is required over TCP: send \"Authorization: Bearer TOKEN\" (nearside token create --api)"
		case !p.Local:
			e.Reason = "the token allows only reading; give its subject a role in api.roles"
		case a.Verb == VerbReadLogs:
			e.Reason = "reading log files requires root" + r.others()
		default:
			e.Reason = "writing requires root" + r.others()
		}
		return e
	}
	for i := range r.roles {
		if x := &r.roles[i]; x.covers(a, some) {
			e.Roles = append(e.Roles, x.name)
		}
	}
	return e
}

// StaticSubject is the subject of a peer with the token of api.tokenFile. No signed token can have
// it, because subjects contain no spaces.
const StaticSubject = "token file"

// others describes who may write besides root.
func (r *Roles) others() (out string) {
	if r.o.AgentUID != 0 {
		out += fmt.Sprintf(", uid %d", r.o.AgentUID)
	}
	if r.o.GID >= 0 {
		out += " or a member of the group " + cmp.Or(r.o.Group, fmt.Sprint(r.o.GID))
	}
	return out
}

// CheckRole returns nil if the role of that name, configured or built in, allows an action, else a
// [ForbiddenError] with the roles that do.
func (r *Roles) CheckRole(name string, a Action) error {
	if ok, _ := r.RoleMay(name, a); ok {
		return nil
	}
	e := &ForbiddenError{Who: "the role " + name, Action: a}
	for i := range r.roles {
		if r.roles[i].covers(a, false) {
			e.Roles = append(e.Roles, r.roles[i].name)
		}
	}
	for _, built := range [...]string{TemplateOperator, TemplateObservability, TemplateViewer, TemplateKubernetes} {
		if x := (role{allow: Template(built)}); x.covers(a, false) && !slices.Contains(e.Roles, built) {
			e.Roles = append(e.Roles, built)
		}
	}
	return e
}

// RoleMay reports whether the role of that name, configured or built in, allows an action. known is
// false if there is no such role.
func (r *Roles) RoleMay(name string, a Action) (allowed, known bool) {
	for i := range r.roles {
		if r.roles[i].name == name {
			return r.roles[i].covers(a, false), true
		}
	}
	x := role{allow: Template(name)}
	return x.covers(a, false), x.allow != nil
}
