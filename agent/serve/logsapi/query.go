package logsapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Logs that can be read.
const (
	logAccess = "access"
	logAudit  = "audit"
	logDNS    = "dns"
)

// Limits of a query.
const (
	defaultLines = 1000
	maxLines     = 100_000
	defaultSince = "1h"
	maxQuery     = 16 << 10 // bytes
	maxStep      = 86_400   // seconds
)

// query is a parsed GET /v1/logs.
type query struct {
	log             string
	mesh, dataplane string
	filter          traffic.Filter
	by              string        // field to count by; "": lines
	step            time.Duration // of intervals of time to count by; 0: none
	tail            bool          // the last lines instead of the first ones
	follow          bool          // also later lines
	limit           int
	all             bool // all nodes of the pool
}

// parse parses the parameters of a query.
func parse(values url.Values, now time.Time) (*query, *api.Error) {
	q := &query{log: logAccess, mesh: values.Get("mesh"), dataplane: values.Get("dataplane"), by: values.Get("by"),
		limit: defaultLines}
	known := strings.Fields(api.QueryParameters(http.MethodGet, "/v1/logs"))
	for key, given := range values {
		if !slices.Contains(known, key) {
			return nil, invalid(key, given[0], "use "+strings.Join(known, ", "))
		}
	}
	if v := values.Get("log"); v != "" {
		q.log = v
	}
	if !slices.Contains([]string{logAccess, logAudit, logDNS}, q.log) {
		return nil, invalid("log", q.log, "use access, audit, or dns")
	}
	if q.log != logAccess && (q.dataplane != "" || q.by != "") || q.log == logDNS && q.mesh != "" {
		return nil, invalid("log", q.log, "omit mesh, dataplane, and by with this log")
	}
	if q.dataplane != "" && q.mesh == "" {
		return nil, invalid("mesh", "", "give the mesh of the dataplane")
	}
	since := values.Get("since")
	if since == "" {
		since = defaultSince
	}
	var err error
	if q.filter.Since, err = traffic.ParseSince(since, now); err != nil {
		return nil, invalid("since", since, "give a duration above 0 such as 10m, or a time such as 2026-01-31T12:00:00Z")
	}
	if q.filter.Audit = q.log == logAudit; q.filter.Audit {
		q.filter.Mesh = q.mesh
	}
	if v := values.Get("status"); v != "" {
		if q.filter.Codes, err = traffic.ParseCodes(v); err != nil {
			return nil, invalid("status", v, "give codes, classes, and ranges, such as 5xx,404,200-299")
		}
	}
	if n := len(values["where"]); n > logfields.MaxConditions || n > 0 && q.filter.Audit {
		return nil, invalid("where", strconv.Itoa(n), "give at most 16 conditions, and none for the audit log")
	}
	for _, text := range values["where"] {
		c, err := logfields.ParseCondition(text)
		if err != nil {
			return nil, invalid("where", text, err.Error())
		}
		q.filter.Where = append(q.filter.Where, c)
	}
	if q.by != "" {
		if _, err := logfields.Named(q.by); err != nil {
			return nil, invalid("by", q.by, err.Error())
		}
	}
	if v := values.Get("limit"); v != "" {
		if q.limit, err = strconv.Atoi(v); err != nil || q.limit < 1 || q.limit > maxLines {
			return nil, invalid("limit", v, "give a number from 1 to 100000")
		}
	}
	for _, e := range []*api.Error{flag("allNodes", values.Get("allNodes"), &q.all),
		flag("tail", values.Get("tail"), &q.tail), flag("follow", values.Get("follow"), &q.follow)} {
		if e != nil {
			return nil, e
		}
	}
	if v := values.Get("step"); v != "" {
		seconds, err := strconv.Atoi(v)
		if err != nil || seconds < 1 || seconds > maxStep {
			return nil, invalid("step", v, "give a number of seconds from 1 to 86400")
		}
		q.step = time.Duration(seconds) * time.Second
	}
	switch {
	case q.step > 0 && q.by != logfields.Time:
		return nil, invalid("step", values.Get("step"), "use it with by=time")
	case q.tail && q.by != "":
		return nil, invalid("tail", "true", "omit it with by")
	case q.follow && (q.by != "" || q.tail || q.all):
		return nil, invalid("follow", "true", "omit it with by, tail, and allNodes")
	}
	return q, nil
}

// flag parses a parameter that is true or false.
func flag(name, value string, at *bool) *api.Error {
	if value == "" {
		return nil
	}
	set, err := strconv.ParseBool(value)
	if err != nil {
		return invalid(name, value, "give true or false")
	}
	*at = set
	return nil
}

// invalid returns the error for a parameter.
func invalid(name, value, allowed string) *api.Error {
	reason := fmt.Sprintf("%q is invalid; %s", clip.Value(value), allowed)
	return api.NewInvalid("query parameter "+name+": "+reason, api.InvalidParameter{Field: name, Reason: reason})
}
