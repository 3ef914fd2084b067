// Prepare changes the owner of a node's directories for an agent that does not run as root, because
// hostPath creates them for root. It runs as an init container, and is the only container with
// privileges over files. It changes the owner of a directory with all its content, without
// following symbolic links. With --remove it removes directories, for the overlay that cleans up
// nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	owner := flag.Int("owner", 65532, "user and group that own the directories")
	wait := flag.String("wait-for", "", "socket to wait for: exit only when a process listens on it")
	remove := flag.Bool("remove", false, "remove the directories with all their content")
	stay := flag.Bool("stay", false, "run until SIGTERM after the work is done, as a DaemonSet requires")
	var secrets, private []string
	flag.Func("secret", "SOURCE=DESTINATION: file to copy so that only the owner can read it; repeatable",
		func(v string) error {
			secrets = append(secrets, v)
			return nil
		})
	flag.Func("private", "UID:GID=DIRECTORY: a directory of another owner, closed to all but the group; repeatable",
		func(v string) error {
			private = append(private, v)
			return nil
		})
	patience := flag.Duration("patience", 20*time.Second, "how long to wait at most")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	work := func(dir string) error { return give(dir, *owner, *owner, 0o751) } // Envoys of other users must traverse it
	if *remove {
		work = removeAll
	}
	each(flag.Args(), work)
	each(private, givePrivate)
	each(secrets, func(pair string) error { return hand(pair, *owner) })
	if *wait != "" && !await(*wait, *patience) {
		fmt.Fprintf(os.Stderr, "no process listens on %s after %s: access log lines may be lost at the next restart\n",
			*wait, *patience)
	}
	if *stay {
		<-ctx.Done()
	}
}

// each ends the program at the first argument with an error.
func each(args []string, work func(string) error) {
	for _, arg := range args {
		if err := work(arg); err != nil {
			fmt.Fprintf(os.Stderr, "prepare %s: %v\n", arg, err)
			os.Exit(1)
		}
	}
}

// removeAll removes a directory. It does not follow symbolic links, and a directory that does not
// exist is not an error.
func removeAll(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || filepath.Dir(dir) == "/" {
		return errors.New("only an absolute path with two or more elements can be removed")
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(filepath.Base(dir)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "removed %s\n", dir)
	return nil
}

func givePrivate(arg string) error {
	ids, dir, ok := strings.Cut(arg, "=")
	u, g, both := strings.Cut(ids, ":")
	user, err1 := strconv.ParseUint(u, 10, 31)
	group, err2 := strconv.ParseUint(g, 10, 31)
	if !ok || !both || err1 != nil || err2 != nil {
		return errors.New("it must have the form UID:GID=DIRECTORY")
	}
	return give(dir, int(user), int(group), 0o750)
}

// give changes the owner of a directory with all its content, and the mode of the directory.
func give(dir string, owner, group int, mode fs.FileMode) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return errors.New("it is not a directory")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if int(st.Sys().(*syscall.Stat_t).Uid) != owner {
		err := fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || path == "." {
				return nil
			}
			if err != nil {
				return err
			}
			if err := root.Lchown(path, owner, group); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := root.Lchown(".", owner, group); err != nil { // last, so that an interrupted run is repeated
			return err
		}
	}
	return root.Chmod(".", mode)
}

// hand copies a file to a path that only the owner can read, because secret volumes are readable
// for root or for a group.
func hand(pair string, owner int) error {
	from, to, ok := strings.Cut(pair, "=")
	if !ok {
		return errors.New("it is no SOURCE=DESTINATION")
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(to)
	fresh := "." + name + ".new"
	if err := root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chown(owner, owner)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(fresh, name)
}

func await(socket string, patience time.Duration) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if c, err := net.Dial("unixpacket", socket); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}
