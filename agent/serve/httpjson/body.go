package httpjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Body reads a request body within the limit.
func Body(r *http.Request) ([]byte, *api.Error) {
	b, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, api.NewError(http.StatusRequestEntityTooLarge, api.ProblemTooLarge, "Request too large",
			"the body has more than %d bytes; split the request", tooLarge.Limit)
	case err != nil:
		return nil, api.NewInvalid("the body could not be read: " + err.Error())
	case len(b) == 0:
		return nil, api.NewInvalid("the body is empty; send a resource as JSON or YAML")
	}
	return b, nil
}

// LimitBody bounds the body of a request. For a larger body, net/http closes the connection, which
// requires its own writer.
func LimitBody(w http.ResponseWriter, r *http.Request, most int64) {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = u.Unwrap()
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
}

// InvalidField returns the answer for an invalid field of a document.
func InvalidField(field, reason string, args ...any) *api.Error {
	e := api.NewError(http.StatusBadRequest, api.ProblemInvalid, "Invalid request", reason, args...)
	e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: field, Reason: e.Detail})
	e.Detail = field + ": " + e.Detail
	return e
}

// Decode decodes a JSON body with one document and no unknown fields.
func Decode[T any](body []byte, into *T) *api.Error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return api.NewInvalid("the body is not the expected JSON document: " + decodeReason(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return api.NewInvalid("the body has more than one JSON document; send one")
	}
	return nil
}

// decodeReason describes an error of encoding/json without names of Go types.
func decodeReason(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	want := "an object"
	switch wrong.Type.Kind().String() {
	case "string":
		want = "a string"
	case "bool":
		want = "true or false"
	case "slice":
		want = "a list"
	case "int", "int64", "uint", "uint32", "uint64":
		want = "a whole number in range"
	case "float64":
		want = "a number"
	}
	return fmt.Sprintf("%s: %s is expected, not %s", cmp.Or(wrong.Field, "the document"), want, wrong.Value)
}
