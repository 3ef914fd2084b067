// Prepare makes the directories of a node ready for an agent that is not root: hostPath makes them root's. It runs as an init
// container and is the only part with rights over files. A directory that has another owner is given away with all that is in
// it, without following symbolic links.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

func main() {
	owner := flag.Int("owner", 65532, "user and group that own the directories")
	wait := flag.String("wait-for", "", "socket that somebody is to listen on, before this ends")
	patience := flag.Duration("patience", 20*time.Second, "how long to wait at most")
	flag.Parse()
	for _, dir := range flag.Args() {
		if err := give(dir, *owner); err != nil {
			fmt.Fprintf(os.Stderr, "prepare %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
	if *wait != "" && !await(*wait, *patience) {
		fmt.Fprintf(os.Stderr, "nobody listens on %s after %s: lines of access logs may be lost at the next restart\n", *wait, *patience)
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
		if err := root.Lchown(".", owner, owner); err != nil { // last: what was interrupted is done again
			return err
		}
	}
	return root.Chmod(".", 0o751) // Envoys of other users pass through to their socket and FIFOs
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
