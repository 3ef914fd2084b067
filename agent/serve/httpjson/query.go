package httpjson

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// InvalidQuery returns the answer for an invalid query parameter.
func InvalidQuery(name, value, allowed string) *api.Error {
	reason := fmt.Sprintf("%q is invalid; %s", value, allowed)
	return api.NewInvalid("query parameter "+name+": "+reason, api.InvalidParameter{Field: name, Reason: reason})
}

// Bool parses a query parameter that is true, false, or absent; absent is false.
func Bool(r *http.Request, name string) (bool, *api.Error) {
	values, ok := r.URL.Query()[name]
	if !ok {
		return false, nil
	}
	if len(values) == 1 {
		switch values[0] {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, InvalidQuery(name, strings.Join(values, ","), "give true or false, once")
}

// Int parses a query parameter that is a whole number from low to high, or absent.
func Int(r *http.Request, name string, otherwise, low, high int) (int, *api.Error) {
	values, ok := r.URL.Query()[name]
	if !ok {
		return otherwise, nil
	}
	if len(values) == 1 {
		if v, err := strconv.Atoi(values[0]); err == nil && low <= v && v <= high {
			return v, nil
		}
	}
	return 0, InvalidQuery(name, strings.Join(values, ","), fmt.Sprintf("give one whole number from %d to %d", low, high))
}

// Items parses a query parameter with a list.
func Items(r *http.Request, name, done string, possible ...string) (map[string]bool, *api.Error) {
	out := map[string]bool{}
	for _, v := range r.URL.Query()[name] {
		for item := range strings.SplitSeq(v, ",") {
			if !slices.Contains(possible, item) {
				return nil, InvalidQuery(name, item, "only "+strings.Join(possible, " and ")+" can be "+done)
			}
			out[item] = true
		}
	}
	return out, nil
}
