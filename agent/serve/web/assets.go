package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed page
var embedded embed.FS

// pageDir is the folder of the page in embedded.
const pageDir = "page"

// indexFile is the document of the page.
const indexFile = "index.html"

// mediaTypes are the types of the files of the page, by extension.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
	".png": "image/png", ".webp": "image/webp", ".txt": "text/plain; charset=utf-8",
}

// asset is a file of the page.
type asset struct {
	media        string
	plain, small []byte // small is compressed with gzip
	etag         string // without quotes
}

// assets are the files of the page by path. They never change.
type assets map[string]*asset

// pageAssets reads and compresses the embedded page once.
var pageAssets = sync.OnceValues(func() (assets, error) {
	out := assets{}
	err := fs.WalkDir(embedded, pageDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		media, ok := mediaTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("the page has the file %s, whose type is unknown; add it to mediaTypes", name)
		}
		data, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		a := &asset{media: media, plain: data, etag: hex.EncodeToString(sum[:16])}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(data); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if b.Len() < len(data) {
			a.small = b.Bytes()
		}
		out[strings.TrimPrefix(name, pageDir+"/")] = a
		return nil
	})
	if err == nil && out[indexFile] == nil {
		err = fmt.Errorf("the page has no %s", indexFile)
	}
	return out, err
})

// serve writes a file, compressed if the browser accepts that.
func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.media)
	h.Set("Cache-Control", "no-cache") // a browser compares the ETag before it uses its copy
	h.Set("Vary", "Accept-Encoding")
	body, etag := a.plain, `"`+a.etag+`"`
	if a.small != nil && acceptsGzip(r.Header.Values("Accept-Encoding")) {
		body, etag = a.small, `"`+a.etag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	for _, have := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(have), "W/") == etag {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // ignores a client that disconnected
	}
}

// acceptsGzip reports whether an Accept-Encoding header has gzip without a weight of 0.
func acceptsGzip(values []string) bool {
	for _, v := range values {
		for _, coding := range strings.Split(v, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			q, _ := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			return strings.Trim(q, "0.") != "" || q == ""
		}
	}
	return false
}

// PageSize returns the size of the page in bytes, compressed where that is smaller.
func PageSize() (n int, err error) {
	page, err := pageAssets()
	for _, a := range page {
		if a.small != nil {
			n += len(a.small)
		} else {
			n += len(a.plain)
		}
	}
	return n, err
}
