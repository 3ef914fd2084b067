package proxies

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

var (
	dataplaneVar = regexp.MustCompile(`\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)
	varName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// A value of these characters is a single YAML scalar in every context, so it cannot add
	// fields.
	varValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$`)
)

const maxVarValue = 253 // bytes, like a DNS name

// dataplaneFromFile reads the Dataplane of --dataplane and substitutes the variables of
// --dataplane-var.
func dataplaneFromFile(env *command.Env, o *bootstrap.Options, file string, assigned []string) ([]byte, error) {
	vars := map[string]string{}
	for _, s := range assigned {
		name, value, ok := strings.Cut(s, "=")
		switch _, twice := vars[name]; {
		case !ok || !varName.MatchString(name):
			return nil,
				command.Usagef("--dataplane-var %q is invalid; use name=value, where the name consists of letters, "+
					"digits, and _", s)
		case twice:
			return nil, command.Usagef("--dataplane-var %s is given twice", name)
		case len(value) > maxVarValue || !varValue.MatchString(value):
			return nil, command.Usagef("--dataplane-var %s: the value %.64q is invalid; give 1 to %d letters, digits, and . "+
				"_ : / -, starting and ending with a letter or digit", name, value, maxVarValue)
		}
		vars[name] = value
	}
	texts, err := (&command.FileFlags{Flag: "--dataplane", Paths: []string{file}}).Read(env.Stdin)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for i := range texts {
		if len(vars) == 0 {
			break // without variables, braces are plain YAML
		}
		if texts[i].Data, err = fill(texts[i].Data, vars, used); err != nil {
			return nil, fmt.Errorf("--dataplane %s: %w", texts[i].Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !used[name] {
			return nil, command.Usagef("--dataplane-var %s: %s has no {{ %s }}; remove the variable, or use it",
				name, file, name)
		}
	}
	off, faults := offline.Read(texts)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	doc, err := off.Dataplane(o.Mesh, o.Name)
	if err != nil {
		return nil, fmt.Errorf("--dataplane %s: %w", file, err)
	}
	return doc, nil
}

// fill substitutes variables, and records in used which of them occur.
func fill(content []byte, vars map[string]string, used map[string]bool) ([]byte, error) {
	var missing string
	out := dataplaneVar.ReplaceAllFunc(content, func(match []byte) []byte {
		name := string(dataplaneVar.FindSubmatch(match)[1])
		value, ok := vars[name]
		if !ok && missing == "" {
			missing = name
		}
		used[name] = true
		return bytes.Clone([]byte(value))
	})
	if missing != "" {
		return nil, fmt.Errorf("the variable %q has no value; give it with --dataplane-var %s=VALUE", missing, missing)
	}
	return out, nil
}

// adminSocket returns the path of an Envoy's admin socket. It lies in the directory that the agent
// creates below run for the Envoy's user. A directory that another user can write to is an error,
// because that user could take the name of the socket. If the agent creates no directory for the
// user, adminSocket falls back to the user's runtime directory.
func adminSocket(env *command.Env, run, id, runAs string) (string, error) {
	uid := strconv.Itoa(os.Geteuid())
	if runAs != "" {
		uid = runAs
		if _, err := strconv.ParseUint(runAs, 10, 32); err != nil {
			u, err := user.Lookup(runAs)
			if err != nil {
				return "", command.Usagef("--user %q does not exist on this node; give a UID, or --admin-socket PATH", runAs)
			}
			uid = u.Uid
		}
	}
	parent := filepath.Join(run, "envoy")
	dir := filepath.Join(parent, uid)
	path := filepath.Join(dir, id+".sock")
	parentInfo, err := os.Lstat(parent)
	if err != nil { // the agent has not run yet, or this user may not look
		text.Printf(env.Stderr, "warning: %s does not exist yet; the agent creates it at startup for root, "+
			"its own user, and the users in xds.access\n", dir)
		return path, nil
	}
	if parentInfo.Mode().Perm()&0o022 != 0 || !parentInfo.IsDir() {
		return "", fmt.Errorf("other users may write to %s and could take the name of the admin socket; restart the agent, "+
			"which corrects the mode, or give --admin-socket PATH", parent)
	}
	switch st, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", fmt.Errorf("%w; give --admin-socket PATH", err)
	case !st.IsDir() || st.Mode().Perm()&0o022 != 0 ||
		strconv.FormatUint(uint64(st.Sys().(*syscall.Stat_t).Uid), 10) != uid:
		return "", fmt.Errorf("%s does not belong only to the user %s: another user could take the name of the admin "+
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
		"the agent has no directory for admin sockets of the user %s below %s; give --admin-socket "+
			"PATH in a directory of that user, or \"\" for none, or add the user to xds.access and restart the agent",
		uid, parent)
}
