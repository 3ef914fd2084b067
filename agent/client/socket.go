package client

import (
	"io/fs"
	"os"
	"path/filepath"
)

// DefaultSocket is where a privileged agent listens.
const DefaultSocket = "/run/nearside/nearside.sock"

// FindSocket returns the socket to talk to: the one given (a flag), else NEARSIDE_SOCKET, else DefaultSocket. A caller
// that is not root and finds nothing there is led to the places where an agent without privileges listens:
// $XDG_RUNTIME_DIR/nearside/run/nearside.sock and ./nearside-data/run/nearside.sock.
func FindSocket(given string, getenv func(string) string, uid int) string {
	if given != "" {
		return given
	}
	if s := getenv("NEARSIDE_SOCKET"); s != "" {
		return s
	}
	if uid == 0 || isSocket(DefaultSocket) {
		return DefaultSocket
	}
	candidates := []string{filepath.Join("nearside-data", "run", "nearside.sock")}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		candidates = append([]string{filepath.Join(dir, "nearside", "run", "nearside.sock")}, candidates...)
	}
	for _, c := range candidates {
		if isSocket(c) {
			return c
		}
	}
	return DefaultSocket
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}
