package logpaths

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// Registry knows the owner of each log file of a node. It is safe for concurrent use.
type Registry struct {
	rules  *Rules // with the paths of the config
	real   *Rules // with links resolved when the registry was made
	mu     sync.Mutex
	claims map[string]*claim // by path without links
}

// claim is an open file.
type claim struct {
	owner Owner
	uses  int
}

// New returns the registry of a node. The files of its config have their owners from the start.
func New(c *config.Config) *Registry {
	r := &Registry{rules: NewRules(c), claims: map[string]*claim{}}
	real := *r.rules
	real.dirs, real.files = nil, nil
	for _, a := range r.rules.dirs {
		a.path = Resolve(a.path)
		real.dirs = append(real.dirs, a)
	}
	for _, f := range r.rules.files {
		real.files = append(real.files, file{Resolve(f.path), f.owner})
	}
	r.real = &real
	return r
}

// Rules returns the rules of the node.
func (r *Registry) Rules() *Rules { return r.rules }

// Conflicts returns an error for each two files of the config that have one path, or that share
// the names of backups.
func (r *Registry) Conflicts() (errs []error) {
	for i, f := range r.real.files {
		for j, other := range r.real.files[:i] {
			if sameFile(f.path, other.path) {
				errs = append(errs, fmt.Errorf("%s and %s have the file %s, or share the names of its backups (%s); use "+
					"different paths", r.rules.files[j].owner, f.owner, other.path, r.rules.files[i].path))
			}
		}
	}
	return errs
}

// Claim returns the path of a file without links, if an owner may write it. The same owner may
// claim a file several times, and must release it as often.
func (r *Registry) Claim(owner Owner, path string) (string, error) {
	name := Resolve(path)
	if owner == Policies {
		if err := r.CheckPolicy(path); err != nil {
			return "", err
		}
	}
	for _, f := range r.real.files {
		if f.owner != owner && sameFile(f.path, name) {
			return "", fmt.Errorf("%s belongs to %s; use another path", f.path, f.owner)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, c := range r.claims {
		if (other != name || c.owner != owner) && sameFile(other, name) {
			return "", fmt.Errorf("%s of %s is open, and uses the same path or names of backups; use another path",
				other, c.owner)
		}
	}
	if c := r.claims[name]; c != nil {
		c.uses++
	} else {
		r.claims[name] = &claim{owner, 1}
	}
	return name, nil
}

// Release ends a claim. name is the result of Claim.
func (r *Registry) Release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.claims[name]; c != nil {
		if c.uses--; c.uses == 0 {
			delete(r.claims, name)
		}
	}
}

// CheckPolicy returns an error if the agent must not write a file for a policy.
func (r *Registry) CheckPolicy(path string) error {
	if err := r.CheckEnvoy(path); err != nil {
		return err
	}
	if !r.rules.Inside(path) && !r.real.Inside(Resolve(path)) {
		return errors.New(r.rules.Outside())
	}
	return nil
}

// CheckEnvoy returns an error if no Envoy of this node must write a file for a policy, also through
// links or mounts.
func (r *Registry) CheckEnvoy(path string) error {
	name := Resolve(path)
	if why := r.rules.Refused(path); why != "" {
		return errors.New(why)
	}
	if why := r.real.Refused(name); why != "" {
		return errors.New(why)
	}
	// A mount may show a directory at another path, without a link.
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if why := r.mounted(dir); why != "" {
			return errors.New(why)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		for i := range r.real.dirs {
			if a := &r.real.dirs[i]; a.path == dir { // it is open, so what contains it does not matter
				return nil
			}
		}
	}
}

// mounted returns why no policy may write below a directory that is a closed one at another path.
func (r *Registry) mounted(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	for i := range r.real.dirs {
		a := &r.real.dirs[i]
		if a.open {
			continue
		}
		if other, err := os.Stat(a.path); err == nil && os.SameFile(info, other) {
			return fmt.Sprintf("%s is %s, which contains %s, and policies must not write there; use a path below %s", dir,
				a.path, a.what, filepath.Join(r.rules.logs, "access"))
		}
	}
	return ""
}

// maxLinks limits the links of one path.
const maxLinks = 40

// Resolve returns the absolute path of a file without links. Elements that do not exist stay.
func Resolve(path string) string {
	name, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path)
	}
	rest, links := "", 0
	for at := name; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		// The file may be missing, or the target of a link.
		if target, err := os.Readlink(at); err == nil && links < maxLinks {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			at, links = target, links+1
			continue
		}
		up := filepath.Dir(at)
		if up == at {
			return name
		}
		rest, at = filepath.Join(filepath.Base(at), rest), up
	}
}
