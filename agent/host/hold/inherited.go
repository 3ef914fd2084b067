package hold

import (
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Inherited returns the sockets of socket units (sd_listen_fds(3)) with one of the given names
// (FileDescriptorName=), and closes other files, such as those that the descriptor store of an
// earlier release kept. It unsets the environment variables of passed files; call it only once.
func Inherited(names ...string) (sockets []*os.File) {
	for _, f := range activation.Files(true) {
		if slices.Contains(names, f.Name()) {
			sockets = append(sockets, f)
		} else {
			_ = f.Close() // without a reader, writers of a FIFO would block
		}
	}
	return sockets
}
