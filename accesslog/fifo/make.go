package fifo

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// Files next to a FIFO begin with '.', unlike FIFOs.
const (
	recordSuffix = ".json"
	tempSuffix   = ".tmp"
	leftoverPart = ".left-"
)

func hidden(name, suffix string) string { return "." + name + suffix }

// pipeRecord is the content of the record file next to a FIFO.
type pipeRecord struct {
	Owner  string            `json:"owner"`
	Labels map[string]string `json:"labels,omitempty"`
	Link   string            `json:"link,omitempty"`
}

// maxRecord limits the size of a record.
const maxRecord = 64 << 10

// setOwner gives a FIFO the least rights that its writer needs. If possible, the writer's user owns
// it and can only write; otherwise the group can write, and this process owns it. In a private
// directory, everyone can write.
func (ps *Pipes) setOwner(fd int, want Pipe) error {
	euid := os.Geteuid()
	group := ps.opts.Group
	if group < 0 {
		group = want.GID
	}
	uid, gid, mode := -1, -1, uint32(0o600)
	switch {
	case ps.opts.Private:
		mode = 0o622
	case want.UID == euid:
	case want.UID >= 0 && euid == 0:
		uid, gid, mode = want.UID, os.Getegid(), 0o260
	case group >= 0:
		gid, mode = group, 0o620
	default:
		return fmt.Errorf("its writer runs as user %d, this process as user %d, and no group is known; run as root, "+
			"or set a group of both users", want.UID, euid)
	}
	if err := setMode(fd, mode); err != nil {
		return fmt.Errorf("set its mode to %04o: %w", mode, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uid >= 0 && int(st.Uid) != uid || gid >= 0 && int(st.Gid) != gid {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return fmt.Errorf("set its owner to user %d and group %d: %w; run as root or as a member of the group",
				uid, gid, err)
		}
	}
	return nil
}

// setMode sets the mode of a FIFO. Root without CAP_FOWNER can change only its own, and takes one
// of another user for that.
func setMode(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint32(st.Mode)&0o7777 == mode {
		return err
	}
	err := unix.Fchmod(fd, mode)
	if errors.Is(err, unix.EPERM) && unix.Fchown(fd, os.Geteuid(), -1) == nil {
		err = unix.Fchmod(fd, mode)
	}
	return err
}

// make creates a FIFO under a temporary name, holds it, and renames it. If a regular file has the
// name, make moves that file and returns its new name.
func (ps *Pipes) make(p *pipe, want Pipe) (leftoverName string, err error) {
	temp := hidden(p.name, tempSuffix)
	if err := unix.Unlinkat(ps.dir, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("remove %s: %w", temp, err)
	}
	if err := unix.Mkfifoat(ps.dir, temp, 0o600); err != nil {
		return "", fmt.Errorf("create the FIFO: %w", err)
	}
	f, err := ps.open(p, temp)
	if err != nil {
		_ = unix.Unlinkat(ps.dir, temp, 0)
		return "", err
	}
	if err = ps.setOwner(f.fd, want); err == nil {
		err = ps.hold(p, temp)
	}
	if err == nil {
		leftoverName, err = ps.install(p.name, temp)
	}
	if err != nil {
		_ = unix.Unlinkat(ps.dir, temp, 0)
		f.close()
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur != nil {
		p.cur.note.close()
		p.cur.note = nil // the note belongs to the new FIFO of that name
		p.old = append(p.old, p.cur)
	}
	ps.openNote(p, f)
	p.cur, p.holdErr = f, nil
	return leftoverName, nil
}

// install renames a FIFO to its name. It exchanges the FIFO with an existing regular file, so the
// name exists at all times.
func (ps *Pipes) install(name, temp string) (string, error) {
	err := unix.Renameat2(ps.dir, temp, ps.dir, name, unix.RENAME_NOREPLACE)
	if err == nil || !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	if kind, err := ps.kind(name); err != nil {
		return "", err
	} else if kind != unix.S_IFREG {
		return "", occupied(ps.opts.Dir, name, kind)
	}
	if err := unix.Renameat2(ps.dir, temp, ps.dir, name, unix.RENAME_EXCHANGE); err != nil {
		return "", fmt.Errorf("exchange a file with the FIFO: %w", err)
	}
	left := hidden(name, fmt.Sprintf("%s%d", leftoverPart, time.Now().UnixNano()))
	return left, unix.Renameat2(ps.dir, temp, ps.dir, left, unix.RENAME_NOREPLACE)
}

// kind returns the file type of a name, or 0 if it does not exist.
func (ps *Pipes) kind(name string) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstatat(ps.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	return st.Mode & unix.S_IFMT, err
}

// occupied returns the error for a name that is neither a FIFO nor a regular file.
func occupied(dir, name string, kind uint32) error {
	what := map[uint32]string{unix.S_IFDIR: "directory", unix.S_IFSOCK: "socket", unix.S_IFLNK: "symbolic link"}[kind]
	if what == "" {
		what = "device"
	}
	return fmt.Errorf("a %s has the name of FIFO %s/%s; remove it", what, dir, name)
}

// open opens a FIFO for a pipe.
func (ps *Pipes) open(p *pipe, name string) (*fifo, error) {
	f, err := openFIFO(ps.dir, name)
	if err != nil {
		return nil, err
	}
	f.copies = ps.copies
	f.l = accesslog.Lines{To: p.gate, Count: &p.count, Max: ps.opts.MaxLine, Buffers: ps.memory}
	return f, nil
}

// openHold opens a FIFO for a holder. It never blocks, because the descriptor of the pipe is open
// or O_NONBLOCK is set.
func (ps *Pipes) openHold(name string) (*os.File, error) {
	fd, err := openNoFollow(ps.dir, name)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil { // keeps the file out of Go's poller
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (ps *Pipes) writeRecord(name string, r pipeRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxRecord {
		return fmt.Errorf("the labels have %d bytes; use at most %d", len(b), maxRecord)
	}
	temp, to := hidden(name, recordSuffix+tempSuffix), hidden(name, recordSuffix)
	_ = unix.Unlinkat(ps.dir, temp, 0)
	fd, err := unix.Openat(ps.dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(ps.dir, temp, ps.dir, to)
	}
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

func (ps *Pipes) readRecord(name string) (pipeRecord, error) {
	fd, err := openNoFollow(ps.dir, hidden(name, recordSuffix))
	if err != nil {
		return pipeRecord{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	b := make([]byte, maxRecord+1)
	n, err := f.Read(b)
	if err != nil {
		return pipeRecord{}, err
	}
	return decodeRecord(b[:n])
}

func decodeRecord(b []byte) (r pipeRecord, err error) {
	if len(b) > maxRecord {
		return pipeRecord{}, fmt.Errorf("the record has more than %d bytes", maxRecord)
	}
	err = json.Unmarshal(b, &r)
	return r, err
}

// leftovers returns the files that were found in place of a FIFO, oldest first.
func (ps *Pipes) leftovers(names []string, name string) []string {
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, hidden(name, leftoverPart)) && !strings.HasSuffix(n, cursorSuffix) {
			out = append(out, n)
		}
	}
	return out
}
