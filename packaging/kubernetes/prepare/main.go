// Prepare changes the owner of a node's directories for an agent that does not run as root, because
// hostPath creates them for root. It runs as an init container, and is the only container with
// privileges over files. It changes the owner of a directory with all its content, without
// following symbolic links.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	owner := flag.Int("owner", 65532, "user and group that own the directories")
	wait := flag.String("wait-for", "", "socket to wait for: exit only when a process listens on it")
	var secrets []string
	flag.Func("secret", "SOURCE=DESTINATION: file to copy so that only the owner can read it; repeatable",
		func(v string) error {
			secrets = append(secrets, v)
			return nil
		})
	patience := flag.Duration("patience", 20*time.Second, "how long to wait at most")
	flag.Parse()
	for _, dir := range flag.Args() {
		if err := give(dir, *owner); err != nil {
			fmt.Fprintf(os.Stderr, "prepare %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
	for _, pair := range secrets {
		if err := hand(pair, *owner); err != nil {
			fmt.Fprintf(os.Stderr, "prepare %s: %v\n", pair, err)
			os.Exit(1)
		}
	}
	if *wait != "" && !await(*wait, *patience) {
		fmt.Fprintf(os.Stderr, "no process listens on %s after %s: access log lines may be lost at the next restart\n",
			*wait, *patience)
	}
}

func give(dir string, owner int) error {
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
			if err := root.Lchown(path, owner, owner); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := root.Lchown(".", owner, owner); err != nil { // last, so that an interrupted run is repeated
			return err
		}
	}
	return root.Chmod(".", 0o751) // Envoys of other users must traverse it to reach their socket and FIFOs
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
