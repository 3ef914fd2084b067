package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// Limits of a registration.
const (
	maxFile  = 4096 // bytes
	maxLabel = 63   // bytes of a uid and of a namespace
	maxName  = 253  // bytes of the name of a pod and of a service account
)

// suffix is the end of the name of a registration. The rest is the uid of the pod.
const suffix = ".json"

var (
	uidForm   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)
	labelForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	nameForm  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

// remedyWritten ends errors about the content of a file that only the CSI driver writes.
const remedyWritten = "the CSI driver of nearside writes this file: delete the pod, or update the driver"

// decode decodes the registration of a pod. Fields that it does not know belong to later versions.
func decode(uid string, b []byte) (*access.Pod, error) {
	var p access.Pod
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("it is not valid JSON of a pod; %s", remedyWritten)
	}
	if p.UID != uid {
		return nil, fmt.Errorf("uid: %q is not the name of the file; %s", clip.Value(p.UID), remedyWritten)
	}
	for _, f := range []struct {
		field, value string
		most         int
		form         *regexp.Regexp
		optional     bool
	}{
		{"uid", p.UID, maxLabel, uidForm, false},
		{"namespace", p.Namespace, maxLabel, labelForm, false},
		{"name", p.Name, maxName, nameForm, false},
		{"serviceAccount", p.ServiceAccount, maxName, nameForm, true},
	} {
		if f.optional && f.value == "" {
			continue
		}
		if len(f.value) > f.most || !f.form.MatchString(f.value) {
			return nil, fmt.Errorf("%s: %q is not a valid name of at most %d bytes; %s", f.field, clip.Value(f.value), f.most,
				remedyWritten)
		}
	}
	return &p, nil
}

// stamp changes with the content of a file.
type stamp struct {
	ino          uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp { return stamp{st.Ino, st.Size, st.Mtim, st.Ctim} }

// register reads the registration of a pod in the directory, unless the file has the stamp.
func (p *Pods) register(dir int, file string, have stamp) (pod *access.Pod, at stamp, err error) {
	fd, err := unix.Openat(dir, file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, at, fmt.Errorf("it is a symbolic link; %s", remedyWritten)
	case err != nil:
		return nil, at, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, at, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, at, fmt.Errorf("it is not a regular file; %s", remedyWritten)
	case !p.trusts(st.Uid):
		return nil, at, fmt.Errorf("it belongs to uid %d instead of root; %s", st.Uid, remedyWritten)
	case st.Mode&0o022 != 0:
		return nil, at, fmt.Errorf("its mode %04o lets other users write it; %s", st.Mode&0o7777, remedyWritten)
	case st.Size > maxFile:
		return nil, at, fmt.Errorf("it has %d bytes, and at most %d are allowed; %s", st.Size, maxFile, remedyWritten)
	}
	if at = stampOf(&st); at == have {
		return nil, at, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, at, err
	}
	pod, err = decode(strings.TrimSuffix(file, suffix), b)
	return pod, at, err
}

// trusts reports whether files of a user count.
func (p *Pods) trusts(uid uint32) bool { return uid == 0 || int(uid) == p.o.Owner }

// openRoot opens the directory of all pods. It fails if users other than root and the agent could
// change it, or could reach the sockets in it.
func (p *Pods) openRoot() (*os.File, error) {
	fd, err := unix.Open(p.o.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("xds.pods: %s is a symbolic link or not a directory; set the path of the directory itself",
			p.o.Dir)
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("xds.pods: %s does not exist; start the CSI driver of nearside on this node: %w", p.o.Dir, err)
	case err != nil:
		return nil, fmt.Errorf("xds.pods: %s: %w; let the agent's group read it", p.o.Dir, err)
	}
	f := os.NewFile(uintptr(fd), p.o.Dir)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = fmt.Errorf("xds.pods: %s: %w", p.o.Dir, err)
	} else if !p.trusts(st.Uid) || st.Mode&0o027 != 0 {
		err = fmt.Errorf("xds.pods: %s belongs to uid %d with mode %04o, so that other users could act as pods; "+
			"make it belong to root with the mode 0750 and the agent's group", p.o.Dir, st.Uid, st.Mode&0o7777)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openPod opens the directory of a pod.
func (p *Pods) openPod(root int, uid string) (*os.File, error) {
	fd, err := unix.Openat(root, uid, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, errors.New("its directory is a symbolic link or not a directory; delete the pod")
	case errors.Is(err, unix.ENOENT):
		return nil, errors.New("its directory does not exist; delete the pod")
	case err != nil:
		return nil, fmt.Errorf("its directory: %w", err)
	}
	f := os.NewFile(uintptr(fd), uid)
	var st, above unix.Stat_t
	if err = errors.Join(unix.Fstat(fd, &st), unix.Fstat(root, &above)); err == nil {
		switch {
		case !p.trusts(st.Uid):
			err = fmt.Errorf("its directory belongs to uid %d; set --owner of the CSI driver to the agent's user (%d)", st.Uid,
				p.o.Owner)
		case st.Mode&0o022 != 0:
			err = fmt.Errorf("the mode %04o of its directory lets other users write there; delete the pod", st.Mode&0o7777)
		case st.Dev != above.Dev:
			err = errors.New("its directory is on another file system; unmount it, or delete the pod")
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
