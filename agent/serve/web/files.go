package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/google/renameio/v2"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// File is the document of ui/files.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
	ETag string `json:"etag"` // of the text; PUT requires it in If-Match
}

// maxFile bounds a file that the page edits, in bytes.
const maxFile = api.MaxBody

// files reads or replaces a resource file of the agent, with the rights of the user of this
// process.
func (s *Server) files(w http.ResponseWriter, r *http.Request) {
	if e := s.file(w, r); e != nil {
		writeProblem(w, e, nil)
	}
}

func (s *Server) file(w http.ResponseWriter, r *http.Request) *api.Error {
	if !s.opts.EditFiles {
		return api.NewError(http.StatusForbidden, api.ProblemDenied, "Read-only page",
			"this page cannot edit files; edit them in an editor, or run nearside ui --write on the node of the agent")
	}
	path, e := s.listed(r)
	if e != nil {
		return e
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		text, _, e := readFile(path)
		if e != nil {
			return e
		}
		writeJSON(w, File{Path: path, Text: string(text), ETag: etagOf(text)})
		return nil
	case http.MethodPut:
		return s.replaceFile(w, r, path)
	}
	w.Header().Set("Allow", "GET, HEAD, PUT")
	return api.NewError(http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed",
		"%s is not allowed here; allowed: GET, HEAD, PUT", clip.Value(r.Method))
}

// listed returns the path of the request if it is one of the resource files in the status of the
// agent.
func (s *Server) listed(r *http.Request) (string, *api.Error) {
	values := r.URL.Query()["path"]
	if len(values) != 1 || len(r.URL.Query()) != 1 {
		return "", api.NewInvalid("the query parameter path is required, once; give the path of a resource file",
			api.InvalidParameter{Field: "path", Reason: "is required, once"})
	}
	path := values[0]
	status, _, body, err := s.get(r.Context(), "", "/v1/status")
	var doc api.Status
	switch {
	case err != nil:
		return "", unreachable(err)
	case status != http.StatusOK:
		return "", api.NewError(http.StatusBadGateway, api.ProblemUnreachable, "The agent is not reachable",
			"its status, which lists the resource files, has the HTTP status %d; see nearside status", status)
	case json.Unmarshal(body, &doc) != nil:
		return "", unreachable(errors.New("its status is not JSON"))
	}
	for _, f := range doc.Files {
		if f.Path == path && filepath.IsAbs(path) && filepath.Clean(path) == path {
			return path, nil
		}
	}
	return "", api.NewNotFound("%q is not a resource file of the agent; nearside status lists them", clip.Value(path))
}

func etagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// readFile reads a file that is not a symbolic link, and must contain text.
func readFile(path string) ([]byte, fs.FileInfo, *api.Error) {
	st, err := os.Lstat(path)
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return nil, nil, api.NewError(http.StatusConflict, api.ProblemOwned, "Managed elsewhere",
			"%s is a symbolic link, so another program replaces it; edit its source", path)
	}
	var text []byte
	if err == nil {
		var f *os.File
		if f, err = files.OpenRegular(path); err == nil {
			defer f.Close()
			text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
		}
	}
	switch {
	case err != nil:
		return nil, nil, failedFile("read", path, err)
	case len(text) > maxFile:
		return nil, nil, api.NewError(http.StatusConflict, api.ProblemTooLarge, "Too large",
			"%s has more than %d bytes; edit it in an editor", path, maxFile)
	case !utf8.Valid(text):
		return nil, nil, api.NewError(http.StatusConflict, api.ProblemDocument, "Not text",
			"%s is not text in UTF-8; edit it in an editor", path)
	}
	return text, st, nil
}

// failedFile is the answer for a file that cannot be read or replaced.
func failedFile(verb, path string, err error) *api.Error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.NewNotFound("%s does not exist; create it in an editor", path)
	case errors.Is(err, fs.ErrPermission):
		return api.NewError(http.StatusForbidden, api.ProblemDenied, "Permission denied",
			"the user of nearside ui may not %s %s; run nearside ui as a user who may", verb, path)
	case errors.Is(err, syscall.ENOSPC):
		return api.NewError(http.StatusInsufficientStorage, api.ProblemStorage, "Disk full",
			"%s was not changed, because the disk is full; see df -h", path)
	}
	return api.NewError(http.StatusConflict, api.ProblemStorage, "Not possible", "%s %s: %v", verb, path, err)
}

// replaceFile replaces a file atomically, if it still has the content that the sender has read.
func (s *Server) replaceFile(w http.ResponseWriter, r *http.Request, path string) *api.Error {
	var q struct {
		Text *string `json:"text"`
	}
	// An escape sequence of JSON can have six times the bytes of its character.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 6*maxFile))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return tooLarge(path)
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&q)
	}
	switch {
	case err != nil || q.Text == nil || !utf8.Valid(body):
		return api.NewInvalid(`the body is not {"text": "TEXT"}`,
			api.InvalidParameter{Field: "text", Reason: "is missing or no text; give the new content of the file"})
	case len(*q.Text) > maxFile:
		return tooLarge(path)
	}
	match := r.Header.Values("If-Match")
	if len(match) != 1 || match[0] == "" || match[0] == "*" {
		return api.NewInvalid("the header If-Match is required, with the etag of the content that you have read",
			api.InvalidParameter{Field: "If-Match", Reason: "is required, with one etag"})
	}
	s.editing.Lock()
	defer s.editing.Unlock()
	text, st, e := readFile(path)
	switch {
	case e != nil:
		return e
	case etagOf(text) != match[0]:
		return api.NewError(http.StatusConflict, api.ProblemStale, "Changed meanwhile",
			"%s has changed since you read it; read it again, and repeat your change", path)
	}
	if err := replace(path, st, []byte(*q.Text)); err != nil {
		return failedFile("replace", path, err)
	}
	writeJSON(w, File{Path: path, Text: *q.Text, ETag: etagOf([]byte(*q.Text))})
	return nil
}

func tooLarge(path string) *api.Error {
	return api.NewError(http.StatusRequestEntityTooLarge, api.ProblemTooLarge, "Too large",
		"%s: a file that this page edits has at most %d bytes; edit it in an editor", path, maxFile)
}

// replace replaces a file by one with the same mode and owner. When it returns, the content is on
// disk.
func replace(path string, st fs.FileInfo, text []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(st.Mode().Perm()))
	if err != nil {
		return err
	}
	defer f.Cleanup() // it does nothing after success
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(sys.Uid), int(sys.Gid)); err != nil {
			return fmt.Errorf("keep the owner of the file: %w", err)
		}
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
