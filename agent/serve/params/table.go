package params

import (
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Limits of values.
const (
	MaxName    = 253           // characters of a name, as of a resource
	MaxPage    = 10_000        // items of a page
	maxOffset  = 1<<31 - 1     // items before a page
	maxLines   = 100_000       // of logs
	maxStep    = 86_400        // seconds of an interval of logs
	maxProfile = 30            // seconds of a CPU profile
	maxText    = 1024          // characters of other texts
	maxTags    = 64            // tags of a filter
	maxDeletes = 1000          // resources that a preview deletes
	maxTag     = 2*MaxName + 1 // characters of KEY:VALUE
	maxKey     = 3*MaxName + 2 // characters of TYPE/MESH/NAME
)

// sincePattern matches durations and times.
const sincePattern = `^([0-9]+d)?([0-9.]+(ns|us|ms|s|m|h))*$|^[0-9]{4}-[0-9]{2}-[0-9]{2}T.+$`

// OfPath returns the limits of a parameter in a path. A kind has none: an unknown one is not found.
func OfPath(parameter string) Limits {
	l := Limits{Type: String, MaxLength: MaxName, Required: true}
	if parameter == "plural" {
		l.MaxLength = 0
	}
	return l
}

// ofPage returns limits of the size of a page.
func ofPage(least int) Limits {
	return Limits{Type: Integer, Min: least, Max: MaxPage, Default: "100"}
}

// words returns the limits of a list of words.
func words(enum ...string) Limits {
	return Limits{Type: String, Enum: enum, Comma: true, Many: len(enum)}
}

// Of returns the limits of a query parameter of a route.
func Of(method, pattern, parameter string) Limits {
	switch route := method + " " + pattern; parameter + " " + route {
	case "size GET /v1/dns":
		return ofPage(0)
	case "name GET /v1/dns":
		return Limits{Type: String, MaxLength: maxText} // names of hosts may end with a dot
	case "include GET /v1/dataplanes":
		return words("reach")
	case "include GET /meshes/{mesh}/dataplanes/{name}/_config":
		return words("diff")
	case "since GET /v1/history":
		return Limits{Type: String, MaxLength: 64, Pattern: sincePattern}
	case "mesh POST /v1/accesslogs/flush", "dataplane POST /v1/accesslogs/flush":
		return OfPath(parameter)
	}
	switch parameter {
	case "size":
		return ofPage(1)
	case "offset":
		return Limits{Type: Integer, Max: maxOffset, Default: "0"}
	case "seconds":
		return Limits{Type: Integer, Min: 1, Max: maxProfile, Default: "10"}
	case "limit":
		return Limits{Type: Integer, Min: 1, Max: maxLines, Default: "1000"}
	case "step":
		return Limits{Type: Integer, Min: 1, Max: maxStep}
	case "all", "listed", "dryRun", "meta", "shadow", "computed", "allNodes", "include_eds", "tail", "follow":
		return Limits{Type: Boolean, Default: "false"}
	case "gateway", "ingress":
		return Limits{Type: Boolean}
	case "verbose":
		return Limits{Type: String, Enum: []string{"1", "true"}}
	case "verb":
		return Limits{Type: String, Enum: access.Verbs[:], Required: true}
	case "feature":
		return Limits{Type: String, Enum: access.FeatureNames[:], Comma: true}
	case "profile":
		return Limits{Type: String, Default: "heap",
			Enum: []string{"heap", "allocs", "goroutine", "threadcreate", "block", "mutex", "cpu"}}
	case "include":
		return words("diff", "fields")
	case "omit":
		return words("items", "patch")
	case "types":
		return words(api.EventTypes...)
	case "format":
		return Limits{Type: String, Default: "universal", Enum: []string{"universal", "k8s", "kubernetes"}}
	case "log":
		return Limits{Type: String, Default: "access", Enum: []string{"access", "audit", "dns"}}
	case "since":
		return Limits{Type: String, MaxLength: 64, Default: "1h", Pattern: sincePattern}
	case "status":
		return Limits{Type: String, MaxLength: maxText, Comma: true,
			Pattern: "^([0-9]{1,3}(-[0-9]{1,3})?|[1-9][xX][xX])$"}
	case "where":
		return Limits{Type: String, MaxLength: maxText, Many: logfields.MaxConditions,
			Pattern: "^[^=!~<>]+(!=|!~|>=|<=|=|~|>|<)"}
	case "by", "backend", "from", "to", "author", "source":
		return Limits{Type: String, MaxLength: maxText}
	case "signer":
		return Limits{Type: String, MaxLength: 64, Pattern: "^([0-9a-fA-F]{32}|unsigned)?$"}
	case "tag":
		return Limits{Type: String, MaxLength: maxTag, Many: maxTags}
	case "delete":
		return Limits{Type: String, MaxLength: maxKey, Many: maxDeletes, Pattern: "^[^/]+/.+$"}
	}
	return Limits{Type: String, MaxLength: MaxName}
}
