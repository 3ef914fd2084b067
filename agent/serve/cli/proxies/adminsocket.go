package proxies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// adminSocket is where an Envoy makes its admin socket: in the directory below run that the agent
// makes for the Envoy's user, and that nobody else can write to. A directory that is not so is
// refused, since another user could take the name there. Where the agent makes none for the user,
// it is the user's own directory for such files.
func adminSocket(env *command.Env, run, id, runAs string) (string, error) {
	uid := strconv.Itoa(os.Geteuid())
	if runAs != "" {
		uid = runAs
		if _, err := strconv.ParseUint(runAs, 10, 32); err != nil {
			u, err := user.Lookup(runAs)
			if err != nil {
				return "", command.Usagef("--user %q does not exist on this node; give a number, or --admin-socket PATH", runAs)
			}
			uid = u.Uid
		}
	}
	parent := filepath.Join(run, "envoy")
	dir := filepath.Join(parent, uid)
	path := filepath.Join(dir, id+".sock")
	above, err := os.Lstat(parent)
	if err != nil { // the agent has not run yet, or cannot be looked at by this user
		text.Printf(env.Stderr, "warning: %s is not there yet; the agent makes it when it starts, for root, "+
			"for its own user and for the users in xds.access\n", dir)
		return path, nil
	}
	if above.Mode().Perm()&0o022 != 0 || !above.IsDir() {
		return "", fmt.Errorf("other users may write to %s and could take the name of the admin socket; restart the agent, "+
			"which closes it, or give --admin-socket PATH", parent)
	}
	switch st, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", fmt.Errorf("%w; give --admin-socket PATH", err)
	case !st.IsDir() || st.Mode().Perm()&0o022 != 0 ||
		strconv.FormatUint(uint64(st.Sys().(*syscall.Stat_t).Uid), 10) != uid:
		return "", fmt.Errorf("%s is not a directory of the user %s alone: another user could take the name of the admin "+
			"socket; restart the agent, which replaces it, or give --admin-socket PATH", dir, uid)
	default:
		return path, nil
	}
	if own := env.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(own) && uid == strconv.Itoa(os.Geteuid()) {
		own = filepath.Join(own, "nearside")
		if err := os.MkdirAll(own, 0o700); err != nil {
			return "", fmt.Errorf("%w; give --admin-socket PATH", err)
		}
		return filepath.Join(own, id+".sock"), nil
	}
	return "", command.Usagef(
		"the agent makes no directory for the admin sockets of the user %s below %s; give --admin-socket "+
			"PATH in a directory of that user, or \"\" for none, or name the user in xds.access and restart the agent",
		uid, parent)
}
