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
	VerbInspect = "inspect" // what the agent makes of them: configs of proxies, explanations, diffs, status, metrics
	VerbCreate  = "create"
	VerbUpdate  = "update"
	VerbDelete  = "delete"
)

// Verbs are all verbs.
var Verbs = [...]string{VerbGet, VerbList, VerbInspect, VerbCreate, VerbUpdate, VerbDelete}

// Role is an item of api.roles: what its subjects may do.
type Role struct {
	Name     string    `json:"name" required:"" check:"name" max:"63" doc:"Name of the role."`
	Template string    `json:"template,omitempty" oneOf:",mesh-operator,observability,viewer" doc:"Built-in role whose permissions this one has too."`
	Subjects []Matcher `json:"subjects,omitempty" max:"256" doc:"Who has the role: items with user, group, uid, cgroup or token."`
	Allow    []Allow   `json:"allow,omitempty" max:"256" doc:"What the role allows: items with kinds, meshes, names and verbs."`
}

// Allow is a permission of a role. An empty list of meshes or names stands for all of them.
type Allow struct {
	Kinds  []string `json:"kinds" required:"" max:"256" doc:"Kinds of resources; * stands for all."`
	Meshes []string `json:"meshes,omitempty" max:"256" doc:"Meshes; * stands for any characters. Empty: all, and kinds of no mesh."`
	Names  []string `json:"names,omitempty" max:"256" doc:"Names of resources; * stands for any characters. Empty: all."`
	Verbs  []string `json:"verbs" required:"" max:"16" doc:"get, list, inspect, create, update, delete; * stands for all."`
}

// Templates of roles. They are bound to nobody until a role of the config, or an item of
// resources.dir, names them.
const (
	TemplateOperator      = "mesh-operator"
	TemplateObservability = "observability"
	TemplateViewer        = "viewer"
)

// Template returns the permissions of a built-in role, nil for another name. A mesh operator may do
// everything; an observability role reads everything and writes access-log backends; a viewer reads
// everything.
func Template(name string) []Allow {
	read := Allow{Kinds: everything, Verbs: []string{VerbGet, VerbList, VerbInspect}}
	switch name {
	case TemplateOperator:
		return []Allow{{Kinds: everything, Verbs: everything}}
	case TemplateObservability:
		return []Allow{read, {Kinds: []string{"MeshAccessLogBackend", "GlobalAccessLogBackend"},
			Verbs: []string{VerbCreate, VerbUpdate, VerbDelete}}}
	case TemplateViewer:
		return []Allow{read}
	}
	return nil
}

// Action is what a peer wants to do. Kind is "" for what is about no kind, as the status of the
// agent; Mesh is "" for kinds of no mesh and for all meshes, Name is "" for all names.
type Action struct{ Verb, Kind, Mesh, Name string }

// ActionOn returns what a verb is on a resource. A Mesh counts as a resource of itself, so that
// permissions for one mesh hold for it too.
func ActionOn(verb string, k resource.Key) Action {
	a := Action{Verb: verb, Kind: k.Kind, Mesh: k.Mesh, Name: k.Name}
	if k.Kind == "Mesh" {
		a.Mesh = k.Name
	}
	return a
}

// String is the action as words: "update MeshTimeout default/slow".
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
	return out
}

// Writes says whether the action changes something.
func (a Action) Writes() bool {
	return a.Verb == VerbCreate || a.Verb == VerbUpdate || a.Verb == VerbDelete
}

// covers says whether a permission allows an action. With some it is enough that it allows the
// action for some mesh and name, where the action names none.
func (a *Allow) covers(act Action, some bool) bool {
	in := func(patterns []string, s string) bool {
		return len(patterns) == 0 || some && s == "" || anyGlob(patterns, s)
	}
	return anyGlob(a.Verbs, act.Verb) && (anyGlob(a.Kinds, act.Kind) || act.Kind == "" && len(a.Kinds) > 0) &&
		in(a.Meshes, act.Mesh) && in(a.Names, act.Name)
}

// ForbiddenError says that a peer may not do something.
type ForbiddenError struct {
	Who    string
	Action Action
	Reason string   // without roles: what writing needs
	Roles  []string // that would allow it
}

// Error names who asked, for what, and the roles that would allow it.
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
	return out
}

// RoleOptions are what [NewRoles] needs.
type RoleOptions struct {
	Roles    []Role // nil: see [Roles.Can]
	AgentUID uint32
	GID      int    // of the API socket; negative: none
	Group    string // its name, for messages
}

// Roles decides who may do what with resources. It is safe for concurrent use.
type Roles struct {
	o     RoleOptions
	roles []role
}

type role struct {
	name     string
	subjects []matcher
	allow    []Allow
}

// NewRoles resolves the subjects of the roles. It fails at two roles of one name, the name of a
// template, and a subject or permission that says nothing.
func NewRoles(o RoleOptions) (*Roles, error) {
	out := &Roles{o: o}
	var errs []error
	seen := map[string]bool{}
	for i, r := range o.Roles {
		at := fmt.Sprintf("api.roles[%d]", i)
		switch {
		case seen[r.Name]:
			errs = append(errs, fmt.Errorf("%s.name: %q is the name of an earlier role; give each its own", at, r.Name))
		case Template(r.Name) != nil && r.Template != r.Name:
			errs = append(errs,
				fmt.Errorf("%s.name: %q is a built-in role; use it as template, or take another name", at, r.Name))
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
						fmt.Errorf("%s.allow[%d].verbs: %.64q is no verb; one of %s, *", at, j, v, strings.Join(Verbs[:], ", ")))
				}
			}
		}
		out.roles = append(out.roles, to)
	}
	return out, errors.Join(errs...)
}

// Missing lists the subjects that match nobody since their user or group does not exist.
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

// AsksCgroup says whether a role looks at the cgroups of peers.
func (r *Roles) AsksCgroup() bool {
	return slices.ContainsFunc(r.roles, func(x role) bool {
		return slices.ContainsFunc(x.subjects, func(m matcher) bool { return m.keys.Cgroup != "" })
	})
}

// Operator says whether a peer may do everything, whatever the roles say: root and the agent's
// user.
func (r *Roles) Operator(p *Peer) bool { return p.Root() || p.is(r.o.AgentUID) }

// List returns the roles of the config, each with the permissions of its template; nil without
// api.roles.
func (r *Roles) List() []Role {
	out := slices.Clone(r.o.Roles)
	for i := range out {
		out[i].Allow = r.roles[i].allow
	}
	return out
}

// Of returns the names of the roles that a peer has, in the order of the config.
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

// Can returns nil when the peer may do something, else a [ForbiddenError].
//
// Root and the agent's user may do everything. Others may do what one of their roles allows.
// Without roles, everybody whom the socket lets in, and who has a token, may read, and members of
// the socket's group may write.
func (r *Roles) Can(p *Peer, a Action) error { return r.can(p, a, false) }

// CanSome is [Roles.Can] for an action that names no mesh or no name: it returns nil when the peer
// may do it for some.
func (r *Roles) CanSome(p *Peer, a Action) error { return r.can(p, a, true) }

// May is [Roles.Can] as yes or no, for lists: naming who was refused looks up a user.
func (r *Roles) May(p *Peer, a Action) bool { return r.may(p, a, false) }

func (r *Roles) may(p *Peer, a Action, some bool) bool {
	switch {
	case r.Operator(p):
		return true
	case r.o.Roles != nil:
		return slices.ContainsFunc(r.roles, func(x role) bool { return x.covers(a, some) && x.has(p) })
	case p.Local:
		return !a.Writes() || p.in(r.o.GID)
	}
	return p.Token != nil && (!a.Writes() || p.Token.Subject == StaticSubject)
}

func (r *Roles) can(p *Peer, a Action, some bool) error {
	if r.may(p, a, some) {
		return nil
	}
	e := &ForbiddenError{Who: p.Account(), Action: a}
	if r.o.Roles == nil {
		switch {
		case !p.Local && p.Token == nil:
			e.Reason = "over TCP it takes a token: send \"Authorization: Bearer TOKEN\" (nearside token create --api)"
		case !p.Local:
			e.Reason = "the token may read only; give its subject a role in api.roles"
		default:
			e.Reason = "writing takes root" + r.others()
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

// StaticSubject is the subject of who shows the token of api.tokenFile. No signed token can have
// it: subjects have no spaces.
const StaticSubject = "token file"

// others names who may write beside root.
func (r *Roles) others() (out string) {
	if r.o.AgentUID != 0 {
		out += fmt.Sprintf(", uid %d", r.o.AgentUID)
	}
	if r.o.GID >= 0 {
		out += " or a member of the group " + cmp.Or(r.o.Group, fmt.Sprint(r.o.GID))
	}
	return out
}

// CheckRole returns nil when a role, or a built-in one, by its name allows an action, else a
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
	for _, built := range [...]string{TemplateOperator, TemplateObservability, TemplateViewer} {
		if x := (role{allow: Template(built)}); x.covers(a, false) && !slices.Contains(e.Roles, built) {
			e.Roles = append(e.Roles, built)
		}
	}
	return e
}

// RoleMay says whether a role, or a built-in one, by its name allows an action; known is false for
// a name that neither has.
func (r *Roles) RoleMay(name string, a Action) (allowed, known bool) {
	for i := range r.roles {
		if r.roles[i].name == name {
			return r.roles[i].covers(a, false), true
		}
	}
	x := role{allow: Template(name)}
	return x.covers(a, false), x.allow != nil
}
