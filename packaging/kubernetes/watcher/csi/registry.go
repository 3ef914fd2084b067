package csi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxRegistration bounds a registration file. The longest valid one has less than 800 bytes.
const maxRegistration = 4096

var (
	// errBusy is returned while another driver works in the same directory.
	errBusy = errors.New("another process of the driver works in this directory: the kubelet tries again")
	// errTaken is returned for a pod that is registered with another identity.
	errTaken = errors.New("this pod is registered as another one")
)

// registry is the open and locked directory "pods" below paths.run of the agent. It has a directory
// UID for each pod, and a file UID.json while the agent shall serve it.
type registry struct {
	dir   *os.File
	root  *os.Root
	owner int
}

// openRegistry opens and locks the directory. If it does not exist, openRegistry makes it, or
// returns fs.ErrNotExist. Another owner than root is refused, because the driver then would act as
// root on names that another user chooses.
func openRegistry(runDir string, owner int, create bool) (*registry, error) {
	run, err := os.Open(runDir)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if create {
		if err := unix.Mkdirat(int(run.Fd()), "pods", 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &os.PathError{Op: "mkdir", Path: runDir + "/pods", Err: err}
		}
	}
	dir, err := openBelow(run, "pods", unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	r := &registry{dir: dir, owner: owner}
	if err := r.open(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *registry) open() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.dir.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: r.dir.Name(), Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s belongs to uid %d with mode %04o, but only root may write there: end the pods that "+
			"use it, and delete it", r.dir.Name(), st.Uid, st.Mode&0o7777)
	}
	if err := unix.Flock(int(r.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", r.dir.Name(), errBusy)
	} else if err != nil {
		return &os.PathError{Op: "lock", Path: r.dir.Name(), Err: err}
	}
	// Sockets below it identify pods, so other users must not reach them by this path. A bind mount
	// needs no access to it.
	if st.Mode&0o777 != 0o750 || int(st.Gid) != r.owner {
		if err := errors.Join(r.dir.Chown(os.Geteuid(), r.owner), r.dir.Chmod(0o750)); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(link(r.dir))
	if err != nil {
		return err
	}
	r.root = root
	return nil
}

func (r *registry) close() {
	if r.root != nil {
		_ = r.root.Close()
	}
	_ = r.dir.Close()
}

// directory returns the directory of a pod, and makes it if it does not exist.
func (r *registry) directory(uid string) (*os.File, error) {
	if err := r.root.Mkdir(uid, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := openBelow(r.dir, uid, unix.O_RDONLY, unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(dir.Chown(r.owner, r.owner), dir.Chmod(0o755)); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// registered returns the registration of a pod. It is nil if there is none, or if the file is
// damaged and shall be replaced.
func (r *registry) registered(uid string) (*Pod, error) {
	st, err := r.root.Lstat(uid + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRegistration {
		return nil, fmt.Errorf("%s/%s.json is not a file of at most %d bytes: delete it",
			r.dir.Name(), uid, maxRegistration)
	}
	text, err := r.root.ReadFile(uid + ".json")
	if err != nil {
		return nil, err
	}
	var p Pod
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&p) != nil || p.validate() != nil || p.UID != uid {
		return nil, nil
	}
	return &p, nil
}

// known reports whether a pod is registered. It fails if the registration has another identity.
func (r *registry) known(p Pod) (bool, error) {
	old, err := r.registered(p.UID)
	if err != nil || old == nil {
		return false, err
	}
	if *old != p {
		return false, fmt.Errorf("%s/%s.json: %w: namespace %s, name %s, service account %s; the kubelet now says "+
			"namespace %s, name %s, service account %s", r.dir.Name(), p.UID, errTaken, old.Namespace, old.Name,
			old.ServiceAccount, p.Namespace, p.Name, p.ServiceAccount)
	}
	return true, nil
}

// register writes the registration file of a pod in one step.
func (r *registry) register(p Pod) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	fresh := "." + p.UID + ".json.new"
	if err := r.remove(fresh); err != nil {
		return err
	}
	f, err := r.root.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return r.root.Rename(fresh, p.UID+".json")
}

// unregister makes the agent end its service for a pod.
func (r *registry) unregister(uid string) error {
	return errors.Join(r.remove(uid+".json"), r.remove("."+uid+".json.new"))
}

// removeDirectory removes the directory of a pod with its content. It belongs to root first, so
// that an agent that serves it still cannot add files meanwhile.
func (r *registry) removeDirectory(uid string) error {
	dir, err := openBelow(r.dir, uid, unix.O_RDONLY, unix.RESOLVE_NO_XDEV)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(dir.Chmod(0o700), dir.Chown(os.Geteuid(), os.Getegid()), dir.Close())
	}
	if err != nil {
		return err
	}
	return r.root.RemoveAll(uid)
}

func (r *registry) remove(name string) error {
	if err := r.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pods returns the uids that have a directory or a file, in order, and the names that do not
// belong to the driver.
func (r *registry) pods() (uids, others []string, err error) {
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := e.Name()
		fresh := strings.HasSuffix(name, ".json.new")
		if fresh {
			name = strings.TrimPrefix(strings.TrimSuffix(name, ".new"), ".")
		}
		uid := strings.TrimSuffix(name, ".json")
		if !uidForm.MatchString(uid) || (e.IsDir() && uid != e.Name()) {
			others = append(others, e.Name())
			continue
		}
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return slices.Compact(uids), others, nil
}
