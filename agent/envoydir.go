package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// envoyDirName is the directory next to the xDS socket with one directory for each user that runs
// Envoys.
const envoyDirName = "envoy"

func envoyDir(cfg *config.Config) string {
	return filepath.Join(filepath.Dir(cfg.XDS.Socket.Path), envoyDirName)
}

// envoyDirMode lets all users pass to their own directory, and only the agent create directories.
const envoyDirMode fs.FileMode = 0o711

// makeEnvoyDirs creates a directory DIR/UID for the admin sockets of each user's Envoys, which only
// that user can enter. A user who could create files there could prevent an Envoy from starting, or
// impersonate it. An agent without root creates only the directory of its own user, because it
// cannot change owners.
func makeEnvoyDirs(dir string, uids []uint32, log *slog.Logger) {
	uids = slices.Clone(uids)
	slices.Sort(uids)
	if err := ownDir(dir, uint32(os.Geteuid()), envoyDirMode, log); err != nil {
		log.Warn("the directory of the admin sockets of Envoys cannot be made", "dir", dir, "error", err)
		return
	}
	for _, uid := range slices.Compact(uids) {
		own := filepath.Join(dir, strconv.FormatUint(uint64(uid), 10))
		if int(uid) != os.Geteuid() && os.Geteuid() != 0 {
			log.Debug("only root can create a directory for admin sockets of another user; its Envoys need --admin-socket",
				"dir", own)
			continue
		}
		if err := ownDir(own, uid, 0o700, log); err != nil {
			log.Warn("a directory for admin sockets of Envoys cannot be created", "dir", own, "error", err)
		}
	}
}

// ownDir creates a directory of a user, or changes the owner of an existing one. It removes
// anything else at that path.
func ownDir(dir string, uid uint32, mode fs.FileMode, log *slog.Logger) error {
	st, err := os.Lstat(dir)
	if err == nil && (!st.IsDir() || st.Sys().(*syscall.Stat_t).Uid != uid) {
		log.Warn("the path of an admin socket directory is not a directory of its user; replacing it", "dir", dir,
			"uid", st.Sys().(*syscall.Stat_t).Uid)
		if err := os.RemoveAll(dir); err != nil { // follows no symbolic link
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(dir, mode&0o700); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(dir, int(uid), -1); err != nil {
			return err
		}
	}
	return os.Chmod(dir, mode) // regardless of the umask; no other user may write to the parent
}
