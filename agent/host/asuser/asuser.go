// Package asuser tests which paths of the host a user may use, with the rights of that user. Root
// can test any user, and other users only themselves.
package asuser

import (
	"fmt"
	"math"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is a user with the groups of a process.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	Name     string   // "" if the user has no account
	current  bool     // the user and groups of this process
}

// String returns the user as "envoy (uid 101)".
func (u *User) String() string {
	if u.Name == "" {
		return fmt.Sprintf("uid %d", u.UID)
	}
	return fmt.Sprintf("%s (uid %d)", u.Name, u.UID)
}

// Current returns the user and groups of this process.
func Current() (*User, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("groups of this process: %w", err)
	}
	// #nosec G115 -- ids of the system are not negative
	u := &User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), current: true}
	for _, g := range groups {
		u.Groups = append(u.Groups, uint32(g)) // #nosec G115 -- as above
	}
	if a, err := user.LookupId(fmt.Sprint(u.UID)); err == nil {
		u.Name = a.Username
	}
	return u, nil
}

// Lookup returns a user by name or number, with the groups of the account and further groups, by
// name or number. A number without an account has the group of the same number.
func Lookup(name string, groups []string) (*User, error) {
	a, err := user.Lookup(name)
	if err != nil {
		a, err = user.LookupId(name)
	}
	u := &User{}
	if err != nil {
		id, perr := strconv.ParseUint(name, 10, 32)
		if perr != nil || id == math.MaxUint32 {
			return nil, fmt.Errorf("the user %q does not exist on this node; give a name or a uid", name)
		}
		u.UID, u.GID = uint32(id), uint32(id)
	} else {
		u.Name = a.Username
		ids, err := a.GroupIds()
		if err != nil {
			return nil, fmt.Errorf("groups of the user %s: %w", name, err)
		}
		for i, text := range append([]string{a.Uid, a.Gid}, ids...) {
			id, err := strconv.ParseUint(text, 10, 32)
			switch {
			case err != nil:
				return nil, fmt.Errorf("the user %s has the id %q, which is not a number", name, text)
			case i == 0:
				u.UID = uint32(id)
			case i == 1:
				u.GID = uint32(id)
			default:
				u.Groups = append(u.Groups, uint32(id))
			}
		}
	}
	for _, g := range groups {
		text := g
		if x, err := user.LookupGroup(g); err == nil {
			text = x.Gid
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the group %q does not exist on this node; give a name or a gid", g)
		}
		u.Groups = append(u.Groups, uint32(id))
	}
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	return u, nil
}

// In reports whether the user is in a group.
func (u *User) In(gid uint32) bool { return u.GID == gid || slices.Contains(u.Groups, gid) }

// Do runs f with the rights of the user and returns its error. Only system calls in the goroutine
// of f have these rights. f must not start goroutines, and connections that it opens must not use
// the network poller yet. Do fails if this process may not change its user.
func (u *User) Do(f func() error) error {
	if u.current {
		return f()
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can test as another user: run this command as root, or as %s without --user", u)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := u.become(); err != nil {
			done <- fmt.Errorf("change to the user %s: %w", u, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// become gives this thread, and no other one, the rights of the user. The functions of package
// syscall would change all threads.
func (u *User) become() error {
	var list unsafe.Pointer
	if len(u.Groups) > 0 {
		list = unsafe.Pointer(&u.Groups[0])
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(list), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}
