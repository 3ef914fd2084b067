package directory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// RevisionFile names the commit and author of a published directory: one line each, the second of
// which may be missing. Without it, the commit is that of Git's HEAD.
const RevisionFile = "publish.revision"

// Limits of files that are read for a revision.
const (
	maxRevisionBytes = 4 << 10 // RevisionFile, .git, HEAD, and references
	maxRevisionLine  = 253
	maxPackedRefs    = 1 << 20
	maxRefs          = 5 // references that refer to each other
)

// Revision is the version of a directory, for display.
type Revision struct {
	Commit string    // "" if unknown
	Author string    // of the commit; "" if unknown
	Time   time.Time // when it was written to this directory; zero if unknown
}

// readRevision reads the revision of a directory from RevisionFile, or else from the repository of
// Git that contains the directory. It executes nothing and reads only regular files up to a limit.
func readRevision(dir string) (Revision, error) {
	text, at, err := readSmall(files.OpenRegularInside, filepath.Join(dir, RevisionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return gitRevision(dir)
	}
	r := Revision{Time: at}
	if err == nil {
		r.Commit, r.Author, _ = strings.Cut(strings.TrimSpace(text), "\n")
		r.Author, _, _ = strings.Cut(r.Author, "\n")
		r.Commit, r.Author = strings.TrimSpace(r.Commit), strings.TrimSpace(r.Author)
		switch {
		case r.Commit == "":
			err = errors.New("it is empty")
		case !printable(r.Commit) || !printable(r.Author):
			err = fmt.Errorf("it contains control characters, or a line of more than %d bytes", maxRevisionLine)
		}
	}
	if err != nil {
		return Revision{}, fmt.Errorf("%s: %w; write the commit to its first line, and optionally the author to the second",
			filepath.Join(dir, RevisionFile), err)
	}
	return r, nil
}

func printable(s string) bool {
	return len(s) <= maxRevisionLine && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// readSmall reads a regular file of at most maxRevisionBytes.
func readSmall(open func(string) (*os.File, error), path string) (text string, at time.Time, err error) {
	f, err := open(path)
	if err != nil {
		return "", at, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", at, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRevisionBytes+1))
	if err == nil && len(b) > maxRevisionBytes {
		err = fmt.Errorf("it has more than %d bytes", maxRevisionBytes)
	}
	return string(b), changeTime(st), err
}

// gitRevision returns the commit of HEAD, or a zero revision if no repository contains the
// directory or HEAD cannot be resolved.
func gitRevision(dir string) (Revision, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Revision{}, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if st, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return headCommit(repository(at, st)), nil
		}
		if at == filepath.Dir(at) {
			return Revision{}, nil
		}
	}
}

// gitDirs are the directories of a worktree and of the repository that it belongs to.
type gitDirs struct{ own, common string }

// repository returns the directories of the repository of a worktree whose .git has the status st.
func repository(worktree string, st fs.FileInfo) gitDirs {
	own := filepath.Join(worktree, ".git")
	if !st.IsDir() {
		text, _, err := readSmall(files.OpenRegular, own)
		path, ok := strings.CutPrefix(text, "gitdir: ")
		if err != nil || !ok {
			return gitDirs{own, own}
		}
		own = below(worktree, path)
	}
	common := own
	if text, _, err := readSmall(files.OpenRegular, filepath.Join(own, "commondir")); err == nil {
		common = below(own, text)
	}
	return gitDirs{own, common}
}

// below returns the path that the content of a file names relative to a directory.
func below(dir, text string) string {
	path := strings.TrimRight(text, "\r\n")
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// headCommit resolves HEAD.
func headCommit(git gitDirs) (r Revision) {
	ref := "HEAD"
	for range maxRefs {
		text, at, err := readSmall(files.OpenRegular, filepath.Join(git.own, ref))
		if err != nil {
			text, at, err = readSmall(files.OpenRegular, filepath.Join(git.common, ref))
		}
		r.Time = latest(r.Time, at)
		if err != nil {
			r.Commit = packedRef(filepath.Join(git.common, "packed-refs"), ref)
			break
		}
		text = strings.TrimSpace(text)
		next, symbolic := strings.CutPrefix(text, "ref: ")
		if !symbolic {
			r.Commit = text
			break
		}
		if ref = next; !strings.HasPrefix(ref, "refs/") || !filepath.IsLocal(ref) || filepath.Clean(ref) != ref {
			break
		}
	}
	if !isCommit(r.Commit) {
		return Revision{}
	}
	return r
}

// packedRef returns the value of a reference in a file of packed references, or "".
func packedRef(path, ref string) string {
	f, err := files.OpenRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxPackedRefs)); lines.Scan(); {
		if commit, name, _ := strings.Cut(lines.Text(), " "); name == ref {
			return commit
		}
	}
	return ""
}

// isCommit reports whether a text is a hash of Git: SHA-1 or SHA-256, in hexadecimal.
func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
