package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
)

// recorder keeps an answer; unlike httptest's it leaves the status open until it is written.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

func (r *recorder) response() *http.Response {
	return &http.Response{StatusCode: r.status, Header: r.header, Body: io.NopCloser(&r.body)}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
