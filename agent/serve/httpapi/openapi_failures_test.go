package httpapi_test

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// about is the description of the whole API.
const about = "The HTTP API of the agent, on its unix socket and, where api.tcp is set, over TCP. docs/api.md " +
	"explains the documents. Fields are added, never renamed or removed.\n\n" +
	"Each operation lists its permission (x-permission), the limits of its parameters, and its failures. A failure " +
	"is a problem document (RFC 9457); programs use its type. Clients must be prepared for new types.\n\n" +
	"GET operations also answer HEAD. Other methods of a path get 405 with the header Allow. A header of more than " +
	"64 KiB gets 431, and a request that is not HTTP gets 400, both as text."

// problem explains a type of problem documents with one status.
type problem struct{ about, title, detail string }

// problems are all failures, by status and type.
var problems = map[string]problem{
	"400 invalid-request": {"A query parameter is unknown or not within its limits, or the body is wrong.",
		"Invalid request", `query parameter size: "0" is invalid; give one whole number from 1 to 10000`},
	"400 invalid-resource": {"A document has faults; invalid_parameters lists each. Nothing is stored.",
		"Invalid resource", "nothing was stored; fix the listed fields"},
	"401 token-needed": {"A token is missing or wrong.", "Token needed",
		`requests over TCP require a token: send "Authorization: Bearer TOKEN"; create one with nearside token create --api`},
	"403 permission-denied": {"No role of the sender allows it; denied names the missing permission.",
		"Permission denied", "uid=2001 (shop) may not update MeshTimeout default/slow; the roles that allow it: operators"},
	"403 browser-refused": {"The request looks like one from a web page.", "Browser request refused",
		"the request has the header Origin; web pages cannot use this API; use nearside or curl --unix-socket"},
	"404 not-found": {"There is no such kind, mesh, or object.", "Not found", "MeshTimeout/default/slow does not exist"},
	"409 owned-elsewhere": {"A file, an Envoy, or another node owns the resource.", "Owned by another source",
		"MeshTimeout/default/slow is managed by file:slow.yaml; edit that file"},
	"409 stale-revision": {"The resource was changed during the request, or since its version was signed.",
		"Changed in the meantime",
		"MeshTimeout/default/slow was changed in the meantime; read it again and repeat the change"},
	"409 in-use": {"The object is still needed.", "Mesh in use",
		`mesh "default" still has 1 resource; delete it first`},
	"409 damaged": {"The stored resource cannot be read.", "Damaged",
		"MeshTimeout/default/slow cannot be read from the state file; write or delete it"},
	"409 not-ready": {"The agent has no resolver.", "No resolver", "the agent has no resolver: dns.listen is empty"},
	"409 invalid-request": {"There is no next version of a record.", "No version",
		"this agent is not in a pool, so its records have no versions"},
	"412 stale-revision": {"The resource does not have the ETag of If-Match.", "Stale revision",
		"MeshTimeout/default/slow has the ETag \"7-1f2e3d4c\", but If-Match has \"6-0a1b2c3d\": the resource was changed; " +
			"read it again and repeat the change"},
	"412 exists": {"The resource exists, but If-None-Match requires that it does not.", "Already exists",
		"MeshTimeout/default/slow already exists at revision 7, but If-None-Match requires that it does not"},
	"413 too-large": {"The body is too large.", "Request too large",
		"the body has more than 16777216 bytes; split the request"},
	"422 would-break": {"Envoys could not use the result. Nothing is stored.", "Rejected, nothing stored",
		"Envoy could not use the resulting config. Fix the listed problems"},
	"422 not-trusted": {"The trust file does not allow the signer to write the record. Nothing is stored.",
		"Not trusted", "the trust file allows key 9f86d081884c7d659a2feaa0c55ad015 no MeshTimeout; nothing was stored"},
	"429 too-many-requests": {"Too many wrong tokens, or too many such requests in progress. See Retry-After.",
		"Too many requests",
		"uid=2001 has 16 such requests in progress, which is the limit; repeat the request when one has ended"},
	"500 internal": {"An internal error; the agent's log has details.", "Internal error",
		"the agent had an internal error; its log has the details"},
	"500 envoy": {"The Envoy cannot be queried.", "Could not execute admin operation",
		"Dataplane/default/web: no Envoy is connected"},
	"500 generation-failed": {"The answer or the config of the proxy cannot be computed.", "No config",
		"dataplane default/web: no address is left for its outbounds"},
	"503 not-ready": {"Nothing is computed yet, the state of the agent cannot be used, or it is stopping.",
		"Not ready", "the agent has not computed anything yet; repeat the request in a moment"},
	"503 audit-log": {"The audit log cannot store the event, so the change was not made.", "Audit log not writable",
		"nothing was stored: the audit log cannot be written: no space left on device"},
	"503 generation-failed": {"The mesh cannot be computed.", "No config",
		`mesh "default": no backend has the name ca-1`},
	"503 insufficient-storage": {"The change cannot be shared with the pool, so it was not made.", "Not shared",
		"the file of the pool cannot be written; nothing was stored"},
	"507 insufficient-storage": {"The disk rejects writes, so the change was not made.", "Not durable",
		"the change is not on disk: no space left on device"},
}

// Failures that several operations have in common.
const (
	missing  = "404 not-found,409 damaged"
	computed = "404 not-found,500 generation-failed"
	ofMesh   = computed + ",503 generation-failed"
	ofEnvoy  = missing + ",500 envoy"
	changing = "404 not-found,409 owned-elsewhere,409 stale-revision,412 stale-revision,412 exists,422 not-trusted," +
		"503 audit-log,503 insufficient-storage,507 insufficient-storage"
	deletedGlobal = changing + ",409 in-use"
	deleted       = changing + ",409 damaged"
	storedGlobal  = changing + ",400 invalid-resource,422 would-break,500 generation-failed"
	stored        = storedGlobal + ",409 damaged"
)

// ownFailures are the failures of operations, besides those that [failuresOf] derives.
var ownFailures = map[string]string{
	"flushAccessLogs": "404 not-found,503 not-ready",
	"logs":            "404 not-found,500 generation-failed,503 not-ready",
	"debugText":       "404 not-found",
	"logLevel":        "404 not-found",
	"setLogLevel":     "404 not-found",
	"leave":           "500 generation-failed",
	"heal":            "409 in-use",
	"restoreConflict": stored,
	"versions":        "409 invalid-request",
	"records":         stored + ",409 in-use",
	"apply":           stored,
	"rollback":        stored,
	"put":             stored,
	"putGlobal":       storedGlobal,
	"delete":          deleted,
	"deleteGlobal":    deletedGlobal,
	"diff":            "404 not-found,400 invalid-resource,409 in-use,500 generation-failed",
	"explain":         missing + ",409 not-ready,500 generation-failed,503 generation-failed",
	"wait":            missing,
	"drainProxy":      ofEnvoy + ",409 owned-elsewhere,507 insufficient-storage",
	"services":        "404 not-found",
	"edges":           "404 not-found",
	"configSources":   ofMesh,
	"schema":          "404 not-found",
	"applied":         "404 not-found",
	"history":         missing,
	"globalHistory":   missing,
	"proxy":           missing,
	"zoneEgress":      "404 not-found",
	"zoneIngress":     "404 not-found",
	"proxyPolicies":   ofMesh,
	"proxyBackends":   ofMesh,
	"proxyConfig":     ofMesh,
	"proxyRules":      ofMesh,
	"hostnames":       "404 not-found,503 generation-failed",

	"zoneEgressConfig":        computed,
	"zoneIngressConfig":       computed,
	"proxyDump":               ofEnvoy,
	"proxyStats":              ofEnvoy,
	"proxyClusters":           ofEnvoy,
	"zoneEgressDump":          ofEnvoy,
	"zoneEgressStats":         ofEnvoy,
	"zoneEgressClusters":      ofEnvoy,
	"zoneIngressDump":         ofEnvoy,
	"zoneIngressStats":        ofEnvoy,
	"zoneIngressClusters":     ofEnvoy,
	"zoneIngressKumaDump":     ofEnvoy,
	"zoneIngressKumaStats":    ofEnvoy,
	"zoneIngressKumaClusters": ofEnvoy,
	"loggersOfProxy":          ofEnvoy,
	"setLoggersOfProxy":       ofEnvoy,
	"loggersOfZoneEgress":     ofEnvoy,
	"setLoggersOfZoneEgress":  ofEnvoy,
	"loggersOfZoneIngress":    ofEnvoy,
	"setLoggersOfZoneIngress": ofEnvoy,

	"meshDataplaneOverviews": missing,
	"dataplaneOverview":      missing,
	"serviceInsights":        missing + ",503 generation-failed",
	"attachedPolicies":       missing + ",503 generation-failed",
	"attachedDataplanes":     missing + ",503 generation-failed",
	"list":                   missing,
	"listAll":                "404 not-found",
	"get":                    missing,
	"getGlobal":              missing,
}

// failuresOf returns the documented failures of an operation, as "STATUS TYPE", sorted.
func failuresOf(x *httpapi.Route, op operation) []string {
	out := []string{"400 invalid-request", "403 browser-refused", "500 internal"}
	if own := ownFailures[op.id]; own != "" {
		out = append(out, strings.Split(own, ",")...)
	}
	if !x.Open {
		out = append(out, "401 token-needed", "429 too-many-requests")
	}
	if !x.Open && !x.Connected {
		out = append(out, "403 permission-denied")
	}
	if !api.ServedWithoutState(x.Pattern) {
		out = append(out, "503 not-ready")
	}
	if op.body != nil {
		out = append(out, "413 too-large")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failures adds the failures of an operation to its responses.
func (b *specification) failures(x *httpapi.Route, op operation, responses *yaml.Node) {
	byStatus := map[string][]string{}
	var statuses []string
	for _, f := range failuresOf(x, op) {
		status, typ, _ := strings.Cut(f, " ")
		if byStatus[status] == nil {
			statuses = append(statuses, status)
		}
		byStatus[status] = append(byStatus[status], typ)
	}
	for _, status := range statuses {
		if status == "503" && (op.id == "ready" || op.id == "live") {
			continue
		}
		add(responses, status, b.failure(status, byStatus[status]))
	}
}

// failure returns a reference to the response with a status and types of problems, and defines
// the response.
func (b *specification) failure(status string, types []string) *yaml.Node {
	var key string
	for _, typ := range types {
		for word := range strings.SplitSeq(typ, "-") {
			key += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	key = status + "." + key
	ref := flow(mapping("$ref", "#/components/responses/"+key))
	if b.responses[key] != nil {
		return ref
	}
	var abouts []string
	enum, examples := sequence(), mapping()
	for _, typ := range types {
		p, known := problems[status+" "+typ]
		if !known {
			b.t.Errorf("the table of problems has no row for %s %s", status, typ)
		}
		abouts = append(abouts, typ+": "+p.about)
		add(enum, "", "/problems/"+typ)
		var code int
		_, _ = fmt.Sscan(status, &code)
		add(examples, typ, mapping("value", flow(mapping("type", "/problems/"+typ, "title", p.title, "status", code,
			"detail", p.detail, "invalid_parameters", sequence()))))
	}
	var code int
	_, _ = fmt.Sscan(status, &code)
	schema := mapping("allOf", sequence((&schema{ref: "Error"}).node(), mapping("properties",
		mapping("type", flow(mapping("enum", enum)), "status", flow(mapping("const", code))))))
	out := mapping("description", strings.Join(abouts, " "))
	header := ""
	switch status {
	case "401":
		header = "WWW-Authenticate"
	case "429":
		header = "Retry-After"
	}
	if header != "" {
		add(out, "headers", mapping(header, flow(mapping("schema", flow(mapping("type", "string"))))))
	}
	add(out, "content", mapping("application/problem+json", mapping("schema", schema, "examples", examples)))
	b.responses[key] = out
	return ref
}

// maxBody is the limit of the body of an operation in bytes.
func maxBody(id string) int {
	switch id {
	case "wait", "explain", "drainProxy", "join", "heal", "forget", "anchorTrust", "restoreConflict":
		return 1 << 20
	}
	return api.MaxBody
}

const restoring = "Also update of the resource, or create of a deleted one, with the features that its " +
	"content needs."

// rights are permissions that an operation needs besides that of its route, by the objects in the
// request.
var rights = map[string]string{
	"apply": "Also create or update of each resource, with the features that its content needs.",
	"put": "create for a new resource, update for an existing one, with the features that its content needs; a dry " +
		"run shows its diff only with inspect.",
	"rollback":        restoring,
	"restoreConflict": restoring,
	"records":         "Also create, update, or delete of each record; update of Agent for records that are no resources.",
	"versions":        "Also get, create, update, or delete of each record.",
	"explain":         "Also inspect of each dataplane and policy in the question, and of the servers in the answer.",
	"wait":            "Also inspect of the resource.",
	"diff":            "Also inspect of the compared dataplanes and of each resource in the request.",
	"flushAccessLogs": "Also inspect of the dataplane.",
	"logs": "A file is read only with read-logs for every dataplane that writes to it; other logs need it " +
		"for Agent.",
	"services":        "Also inspect of one of the kinds of services.",
	"serviceInsights": "Also inspect of MeshService.",
	"trustRecords":    "The answer has only records that the sender may get and update.",
	"names":           "With kind, also list of that kind.",
}

// permissionNode is the machine-readable permission of a route.
func permissionNode(x *httpapi.Route) *yaml.Node {
	out := mapping()
	switch {
	case x.Open:
		add(out, "level", "open")
	case x.Connected:
		add(out, "level", "authenticated")
	case len(x.Verbs) == len(access.Verbs) && x.Some:
		add(out, "level", "any")
	default:
		verbs := sequence()
		for _, v := range x.Verbs {
			add(verbs, "", v)
		}
		add(out, "level", "verb")
		add(out, "anyOf", verbs)
		switch {
		case x.Kind != "":
			add(out, "kind", x.Kind)
		case strings.Contains(x.Pattern, "{plural}"):
			add(out, "kind", "{plural}")
		}
		add(out, "some", x.Some)
	}
	return flow(out)
}

// permissionText describes the permission of a route.
func permissionText(x *httpapi.Route, id string) string {
	if id == "putGlobal" {
		id = "put"
	}
	var out string
	of := "all kinds"
	switch {
	case x.Kind != "":
		of = x.Kind
	case strings.Contains(x.Pattern, "{plural}"):
		of = "the kind in the path"
	}
	verbs := strings.Join(x.Verbs, " or ")
	switch {
	case x.Open:
		out = "Needs no token and no permission."
	case x.Connected:
		out = "Needs an authenticated sender, but no permission."
	case len(x.Verbs) == len(access.Verbs) && x.Some:
		out = "Needs any permission."
	case x.Some && of == "all kinds":
		out = "Needs " + verbs + " of some object; the answer has only objects that the sender may " + verbs + "."
	case x.Some:
		out = "Needs " + verbs + " of some object of " + of + "; the answer has only objects that the sender may " +
			verbs + "."
	default:
		out = "Needs " + verbs + " of " + of + "."
	}
	if more := rights[id]; more != "" {
		out += " " + more
	}
	return out
}
