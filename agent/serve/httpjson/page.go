package httpjson

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// MaxPage bounds the items of a page.
const MaxPage = 10_000

// Page is a page of a list.
type Page[T any] struct {
	Total int     `json:"total"`
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// WritePage writes the page of a list that the query selects. show converts an item.
func WritePage[T, U any](w http.ResponseWriter, r *http.Request, pageSize int, all []T,
	show func(T) (U, *api.Error)) *api.Error {
	size, offset, e := Paging(r, pageSize)
	if e != nil {
		return e
	}
	out := Page[U]{Total: len(all), Items: []U{}, Next: NextPage(r, offset, size, len(all))}
	for _, x := range all[min(offset, len(all)):min(offset+size, len(all))] {
		item, e := show(x)
		if e != nil {
			return e
		}
		out.Items = append(out.Items, item)
	}
	Write(w, http.StatusOK, out)
	return nil
}

// AsIs returns an item unchanged, for WritePage.
func AsIs[T any](x T) (T, *api.Error) { return x, nil }

// NextPage returns the URL of the next page, or nil for the last one.
func NextPage(r *http.Request, offset, size, total int) *string {
	if size == 0 || offset+size >= total {
		return nil
	}
	q := r.URL.Query()
	q.Set("size", strconv.Itoa(size))
	q.Set("offset", strconv.Itoa(offset+size))
	next := (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
	return &next
}

// Paging parses the page of a list. pageSize is the default size.
func Paging(r *http.Request, pageSize int) (size, offset int, e *api.Error) {
	if size, e = Int(r, "size", pageSize, 1, MaxPage); e == nil {
		offset, e = Int(r, "offset", 0, 0, 1<<31-1)
	}
	return size, offset, e
}
