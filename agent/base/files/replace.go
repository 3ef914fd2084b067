package files

import (
	"path/filepath"

	"github.com/google/renameio/v2"
)

// ReplacePrivate atomically replaces a file by one that only the user of the process can access,
// whatever the mode of the file was. When it returns, the content is on disk.
func ReplacePrivate(path string, content []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(privateFileMode))
	if err != nil {
		return err
	}
	defer f.Cleanup() // it does nothing after success
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
