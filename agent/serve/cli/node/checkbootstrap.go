package node

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/host/asuser"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// bootstrapTest is "check --bootstrap": it tests the bootstrap of an Envoy as the Envoy's user.
type bootstrapTest struct {
	file   string
	user   string
	groups []string

	selfTest
	as  *asuser.User
	b   *bootstrap.File
	ref node.Ref
}

func (t *bootstrapTest) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.file, "bootstrap", "", "test the bootstrap of an Envoy instead of the agent")
	cmd.Flags().StringVar(&t.user, "user", "", "user of the Envoy, by name or uid (default: the caller)")
	cmd.Flags().StringArrayVar(&t.groups, "group", nil,
		"further group of the Envoy, such as SupplementaryGroups= of its unit; repeatable")
}

// run runs the tests. Tests that depend on a failed one are omitted.
func (t *bootstrapTest) run(ctx context.Context, env *command.Env) (*selfTest, error) {
	data, err := command.ReadFile(t.file)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap %s: %w", t.file, command.Reason(err))
	}
	switch {
	case t.user != "":
		t.as, err = asuser.Lookup(t.user, t.groups)
	case len(t.groups) > 0:
		err = command.Usagef("--group requires --user, the user of the Envoy")
	default:
		t.as, err = asuser.Current()
	}
	if err == nil {
		err = t.as.Do(func() error { return nil })
	}
	if err != nil {
		return nil, command.Usagef("--user: %v", err)
	}
	t.OK = true
	if !t.checkFile(data) || !t.checkNodeID() {
		return &t.selfTest, nil
	}
	known := t.checkToken(time.Now())
	if t.b.XDSSocket != "" {
		known = t.checkXDSSocket(ctx, env) && known
	} else {
		known = t.checkXDSAddress(ctx) && known
	}
	if !known {
		t.checkStored(ctx, env)
	}
	t.checkAdminSocket()
	return &t.selfTest, nil
}

// checkFile tests whether the user can read the bootstrap, and parses it.
func (t *bootstrapTest) checkFile(data []byte) bool {
	abs, err := filepath.Abs(t.file)
	if err != nil {
		abs = t.file
	}
	if p := t.as.Read(abs); p != nil {
		t.problem("bootstrap", abs, p, "")
	}
	if t.b, err = bootstrap.Parse(data); err != nil {
		t.add(checkFail, "bootstrap", "nearside bootstrap --name NAME prints one", "%s: %v", t.file, err)
		return false
	}
	if t.OK {
		t.add(CheckOK, "bootstrap", "", "%s can be read by %s", t.file, t.as)
	}
	return true
}

// checkNodeID tests the form of the node id.
func (t *bootstrapTest) checkNodeID() bool {
	id := t.b.Node.GetId()
	ref, err := node.ParseRef(id)
	if err != nil {
		t.add(checkFail, "node-id", "correct node.id in the bootstrap; nearside bootstrap --name NAME -m MESH prints one",
			"%v", err)
		return false
	}
	t.ref = ref
	t.add(CheckOK, "node-id", "", "%s stands for %s", id, ref.Key())
	return true
}

// checkToken tests the token in the bootstrap, except for its signature, which only the agent
// knows. It reports whether the agent can be asked with it.
func (t *bootstrapTest) checkToken(now time.Time) bool {
	if t.b.Authorization == "" {
		return true
	}
	id := t.ref.NodeID()
	hint := "create a token with " + t.tokenCommand() + ", and the bootstrap with nearside bootstrap --token-file FILE"
	content, ok := token.Bearer([]string{t.b.Authorization})
	if !ok {
		t.add(checkFail, "token", hint, "the metadata authorization is not of the form \"Bearer TOKEN\"")
		return false
	}
	c, err := token.Decode(content)
	switch matches, _ := path.Match(c.NodeIDs(), id); {
	case err != nil:
		t.add(checkFail, "token", hint, "%v", err)
	case c.Audience != token.AudienceXDS:
		t.add(checkFail, "token", hint, "the token is for %q, not for Envoys", c.Audience)
	case !c.Expires.After(now):
		t.add(checkFail, "token", hint, "the token expired at %s", text.Time(c.Expires))
	case !matches:
		t.add(checkFail, "token", hint, "the token is for the node ids %q, not for %q", c.NodeIDs(), id)
	default:
		t.add(CheckOK, "token", "", "for the node ids %q, until %s", c.NodeIDs(), text.Time(c.Expires))
		return true
	}
	return false
}

// tokenCommand returns the command that creates a token for this proxy only.
func (t *bootstrapTest) tokenCommand() string {
	if t.ref.Type != node.ProxyDataplane {
		return "nearside token create --proxy-type " + string(t.ref.Type) + " --name " + t.ref.Name
	}
	return "nearside token create -m " + t.ref.Mesh + " --name " + t.ref.Name
}

// checkXDSSocket tests the path of the xDS socket, and asks the agent behind it. It reports whether
// the agent answered.
func (t *bootstrapTest) checkXDSSocket(ctx context.Context, env *command.Env) bool {
	socket := t.b.XDSSocket
	if !filepath.IsAbs(socket) {
		t.add(checkWarn, "xds-socket", "use an absolute path; nearside bootstrap prints one",
			"%s is relative to the directory in which the Envoy starts", socket)
		return false
	}
	conn, p := t.as.Connect(socket)
	if p == nil {
		t.add(CheckOK, "xds-socket", "", "%s can use %s", t.as, socket)
		return t.askAgent(ctx, conn)
	}
	agents := filepath.Join(filepath.Dir(env.Socket()), "xds.sock")
	other := ""
	if p.Kind == asuser.Missing {
		found := asuser.Sockets(filepath.Dir(socket))
		switch near := strict.Nearest(filepath.Base(socket), bases(found)); {
		case agents != socket && slices.Contains(asuser.Sockets(filepath.Dir(agents)), agents):
			other = agents
		case near != "":
			other = filepath.Join(filepath.Dir(socket), near)
		}
	}
	t.problem("xds-socket", socket, p, other)
	return false
}

func bases(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, filepath.Base(p))
	}
	return out
}

// checkAdminSocket tests whether the Envoy could create its admin socket.
func (t *bootstrapTest) checkAdminSocket() {
	socket := t.b.AdminSocket
	if socket == "" {
		return
	}
	const maxSocketPath = 107 // sun_path of unix(7)
	switch p := t.as.Create(socket); {
	case !filepath.IsAbs(socket):
		t.add(checkWarn, "admin-socket", "use an absolute path; nearside bootstrap prints one",
			"%s is relative to the directory in which the Envoy starts", socket)
	case len(socket) > maxSocketPath:
		t.add(checkFail, "admin-socket", "use a shorter path",
			"%s has %d bytes; at most %d are possible", socket, len(socket), maxSocketPath)
	case p != nil:
		t.problem("admin-socket", socket, p, "")
	default:
		t.add(CheckOK, "admin-socket", "", "%s can create %s", t.as, socket)
	}
}

// problem adds a failed test of a path. other is an existing path that may be meant, or "". No hint
// asks to change the mode of a path, which could open it to other users.
func (t *bootstrapTest) problem(name, file string, p *asuser.Problem, other string) {
	state, hint := checkFail, ""
	reason := ""
	switch p.Kind {
	case asuser.Missing:
		reason = fmt.Sprintf("%s does not exist", p.Path)
		if p.Path != file {
			reason += ", so " + file + " cannot exist"
		}
		switch {
		case other != "":
			hint = "the socket is probably " + other + ": correct the path in the bootstrap; " +
				"nearside bootstrap --xds-socket " + other + " prints one"
		case name == "xds-socket":
			hint = "start the agent, which creates the socket, or correct the path in the bootstrap; " +
				"nearside config show prints xds.socket.path"
		case name == "admin-socket":
			hint = "the agent creates this directory when it starts, for root, its own user, and the users in xds.access; " +
				"nearside bootstrap --user " + t.userFlag() + " prints the path for the user"
		}
	case asuser.NotEntered:
		reason = fmt.Sprintf("%s may not enter the directory %s (%s), which is on the way to %s",
			t.as, p.Path, p.Access, file)
		hint = t.joinHint(p, 0o010, "move "+filepath.Base(file)+" to a directory that this user may enter")
	case asuser.NotSocket:
		reason = p.Path + " is not a socket"
		hint = "correct the path in the bootstrap; nearside config show prints xds.socket.path"
	case asuser.NoListener:
		state, reason = checkWarn, "nothing listens on "+p.Path+": the agent is not running, and an Envoy waits for it"
		hint = "start the agent, for example with systemctl start nearside"
	case asuser.Denied:
		reason = fmt.Sprintf("%s may not use %s (%s)", t.as, p.Path, p.Access)
		switch name {
		case "xds-socket":
			hint = t.joinHint(p, 0o020, "run the Envoy as a user in the group of the socket, "+
				"or set xds.socket.group to a group of the Envoys only")
		case "bootstrap", "tls":
			hint = "make this user the owner of the file, which may contain a secret: chown " + t.userFlag() + " " + p.Path
		default:
			hint = "nearside bootstrap --user " + t.userFlag() + " prints a bootstrap with a path for this user"
		}
	default:
		reason = fmt.Sprintf("%s: %v", p.Path, p.Err)
	}
	t.add(state, name, hint, "%s", reason)
}

// joinHint advises to join the group of a directory or socket if the group has the bits of mode and
// is not that of an administrator. Otherwise it returns the other hint.
func (t *bootstrapTest) joinHint(p *asuser.Problem, bits uint32, otherwise string) string {
	if uint32(p.Access.Mode.Perm())&bits == 0 || p.Access.GID == 0 || t.as.In(p.Access.GID) {
		return otherwise
	}
	// Members of the group of the API's socket may change all resources.
	if a, err := asuser.AccessOf(filepath.Join(filepath.Dir(t.b.XDSSocket), "nearside.sock")); err == nil &&
		a.GID == p.Access.GID && a.Mode.Perm()&0o020 != 0 {
		return "the group " + p.Access.Group + " may also use the API, so do not add this user to it; " + otherwise
	}
	return fmt.Sprintf("if this user is to run Envoys, add it to the group %s and restart the Envoy, "+
		"or set SupplementaryGroups=%s in its unit", p.Access.Group, p.Access.Group)
}

// userFlag returns the user for --user.
func (t *bootstrapTest) userFlag() string {
	if t.as.Name != "" {
		return t.as.Name
	}
	return strings.TrimPrefix(t.as.String(), "uid ")
}
