package httpapi_test

import (
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// operation is what docs/openapi.yaml says of one method of one path, beside what follows from the
// path.
type operation struct {
	id, does string
	query    string // names of parameters
	headers  string // names of headers
	body     any    // a value of its type, a media type unless it is JSON, or nil
	answer   any    // the same for the response; nil: no body
	// try replaces the path in the request of the test, and send is its body. refused reports that
	// the agent of the test cannot answer.
	try, send string
	refused   bool
}

// operations is the part of docs/openapi.yaml that is written by hand. The routes of the server and
// this table have the same keys.
var operations = map[string]operation{
	"GET /{$}":   {id: "index", does: "Product, version and instance.", answer: api.Index{}},
	"GET /livez": {id: "live", does: "Whether the agent works at all.", query: "verbose", answer: api.Health{}},
	"GET /readyz": {id: "ready", does: "Whether the agent is ready; 503 with the same document when it is not.",
		query: "verbose", answer: api.Health{}, try: "/readyz?verbose"},
	"GET /metrics": {id: "metrics", does: "Metrics in the format of Prometheus.", answer: metrics},

	"GET /v1/access": {id: "listAccess", does: "Roles with their subjects and permissions, and the items of xds.access.",
		answer: api.AccessList{}},
	"GET /v1/access/whoami": {id: "whoami", does: "Who the agent takes the sender for, with roles and verbs.",
		answer: api.Whoami{}},
	"GET /v1/access/can": {id: "can", does: "Whether the sender may do something, and why not.",
		query: "verb kind mesh name feature", answer: api.Can{}, try: "/v1/access/can?verb=get&kind=dataplane&mesh=default"},
	"POST /v1/access/can": {id: "canPost", does: "The same as GET.", query: "verb kind mesh name feature",
		answer: api.Can{},
		try:    "/v1/access/can?verb=update"},

	"GET /v1/status": {id: "status", does: "Health, files, proxies and problems of the agent.",
		answer: api.Status{}},
	"GET /v1/events": {id: "events", does: "Events as they happen, as server-sent events. The data of each is JSON: " +
		"hello is a Hello, change a ChangeEvent, proxy a ProxyEvent, ack an AckEvent, nack a NackEvent, problem a " +
		"ProblemEvent, lost a Lost, and end an End.", query: "types mesh", answer: eventStream,
		try: "/v1/events?types=x", refused: true},
	"GET /v1/accesslogs": {id: "accessLogs", does: "The streams of access logs with their counters.",
		answer: api.AccessLogs{}},
	"POST /v1/accesslogs/flush": {id: "flushAccessLogs", does: "Has the Envoy of a dataplane write what it holds of its " +
		"access logs.", query: "mesh dataplane", try: "/v1/accesslogs/flush?mesh=default&dataplane=web", refused: true},
	"GET /v1/logs": {id: "logs", does: "Lines of log files as JSON objects, one per line, oldest first; the last one is " +
		"{end: LogEnd}. With by, a LogStats document.",
		query:  "log mesh dataplane since status where by step limit tail follow allNodes",
		answer: jsonLines, try: "/v1/logs", refused: true},
	"GET /v1/dns": {id: "dns", does: "The names that the resolver answers, and its state.", query: "mesh name " + paging,
		answer: api.DNS{}},
	"GET /v1/debug/pprof": {id: "profile", does: "A profile of the agent for go tool pprof.", query: "profile seconds",
		answer: binary, try: "/v1/debug/pprof?profile=goroutine"},
	"GET /v1/debug/{item}": {id: "debugText", does: "The effective config of the agent (config), or the end of its log " +
		"(log), without secrets.", answer: metrics, try: "/v1/debug/config"},
	"GET /v1/debug/loglevel": {id: "logLevel", does: "The level of the agent's log.", answer: api.LogLevel{}},
	"PUT /v1/debug/loglevel": {id: "setLogLevel", does: "Changes the level of the agent's log until its config is " +
		"read again.", body: api.LogLevel{}, answer: api.LogLevel{}, send: `{"level":"warn"}`},

	"GET /v1/pool": {id: "pool", does: "The nodes of the pool with the proxies, problems, and conflicts that each " +
		"reports. It asks all live nodes, for at most 3 s.", answer: api.PoolView{}},
	"GET /v1/refusals": {id: "refusals", does: "The xDS streams that this node refuses: who, since when, why, and what " +
		"to do.", answer: api.Refusals{}},
	"GET /v1/history": {id: "allHistory", does: "Revisions of all resources, the newest first.",
		query: "type mesh name author source since " + paging, answer: page[api.HistoryItem]{}},
	"GET /v1/members": {id: "members", does: "The nodes of the gossip pool.", answer: api.Members{}},
	"POST /v1/members/join": {id: "join", does: "Tries to join more members.", body: api.Join{},
		answer: api.JoinedList{}, send: `{"addresses":["127.0.0.1:1"]}`, refused: true},
	"POST /v1/members/leave": {id: "leave", does: "Leaves the pool for good.", answer: nothing{}, refused: true},
	"POST /v1/members/heal": {id: "heal", does: "Begins an era that outranks every date in the pool.",
		body: api.PoolHeal{}, answer: api.PoolHealed{}, send: `{"dryRun":true}`, refused: true},
	"POST /v1/members/forget": {id: "forget", does: "Drops what a dead node owns.", body: api.Forget{},
		answer: nothing{}, send: `{"node":"n2"}`, refused: true},
	"GET /v1/keyring": {id: "keyring", does: "The encryption keys of the pool by fingerprint, and the nodes without them.",
		answer: api.Keyring{}, refused: true},
	"GET /v1/trust": {id: "trust", does: "The trust of this node in the data of the pool.", answer: api.Trust{},
		refused: true},
	"GET /v1/trust/records": {id: "trustRecords", does: "The records of the pool with their signers.", query: "signer",
		answer: api.TrustRecords{}, refused: true},
	"POST /v1/trust/anchor": {id: "anchorTrust", does: "Makes a trust file the first one of this node.",
		body: api.TrustAnchor{}, answer: nothing{}, send: `{"file":"x"}`, refused: true},
	"GET /v1/conflicts": {id: "conflicts", does: "Changes that lost against others made at the same time.",
		query: "allNodes", answer: api.Conflicts{}},
	"POST /v1/conflicts/restore": {id: "restoreConflict", does: "Makes the version that lost the newest one.",
		body: api.RestoreConflict{}, answer: api.Written{}, send: `{"id":"x"}`, refused: true},

	"GET /v1/kinds": {id: "kinds", does: "The kinds of resources.", answer: api.Kinds{}},
	"GET /v1/names": {id: "names", does: "Names of kinds, or of the resources of a kind, for completion.",
		query: "kind mesh prefix", answer: api.Names{}, try: "/v1/names?kind=dataplane"},
	"GET /v1/dataplanes": {id: "proxies", does: "Every proxy, connected or not, with its sync status.", query: "include",
		answer: api.Proxies{}, try: "/v1/dataplanes?include=reach"},
	"GET /v1/dataplanes/{mesh}/{name}/status": {id: "proxy",
		does: "One proxy: versions sent and acknowledged, and what it rejected.", answer: api.Proxy{}},
	"GET /v1/dataplanes/{mesh}/{name}/policies": {id: "proxyPolicies", does: "The policies that select a proxy, " +
		"and what of them is in force.", query: "backend", answer: explain.Policies{}},
	"GET /v1/schemas/{kind}": {id: "schema", does: "The JSON Schema of a kind in the universal format, with the " +
		"comments of its fields.", answer: anything{}, try: "/v1/schemas/meshtimeout"},
	"GET /v1/dataplanes/{mesh}/{name}/sources": {id: "configSources", does: "The policies and fields behind values " +
		"of the config of a proxy.", answer: api.ConfigSources{}},
	"GET /v1/dataplanes/{mesh}/{name}/backends": {id: "proxyBackends",
		does: "Every service of the mesh as the proxy sees it.", answer: explain.Backends{}},
	"GET /v1/services": {id: "services", does: "Every service with its addresses, names and endpoints.",
		query: "mesh kind name " + paging, answer: api.Services{}},
	"GET /v1/edges": {id: "edges", does: "Which services may call which others, why, and their traffic.",
		query: "mesh from to all listed " + paging, answer: api.Edges{}},
	"GET /v1/applied/{plural}": {id: "applied", does: "How far each resource of a kind is in force on the connected " +
		"proxies.", query: "mesh name", answer: api.AppliedList{}},
	"GET /v1/history/{plural}/{name}": {id: "globalHistory", does: "Revisions of a resource of a global kind, " +
		"oldest first.", answer: api.History{}, try: "/v1/history/meshes/default"},
	"GET /v1/history/{plural}/{mesh}/{name}": {id: "history", does: "Revisions of a resource, oldest first.",
		answer: api.History{}},
	"POST /v1/apply": {
		id:      "apply",
		does:    "Stores many documents in one step, all or none.",
		query:   "dryRun omit",
		headers: "If-Match If-None-Match",
		body:    documents,
		answer:  api.Written{},
		try:     "/v1/apply?dryRun=true",
		send: "{type: Dataplane, mesh: default, name: more, networking: {address: 192.0.2.7, inbound: [{port: 80, " +
			"tags: {kuma.io/service: web}}]}}",
	},
	"POST /v1/versions": {id: "versions", does: "What a signer needs to make the next versions of records.",
		body: api.KeyVersions{}, answer: api.NextVersions{},
		send: `{"items":[{"type":"TrustFile","mesh":"","name":"trust"}]}`},
	"POST /v1/records": {id: "records", does: "Stores signed versions of records in one step, all or none.",
		body: api.SignedRecords{}, answer: api.Written{}, send: `{"records":["CgA="]}`, refused: true},
	"POST /v1/rollback": {
		id:     "rollback",
		does:   "Restores the content of an earlier revision as a new one.",
		body:   api.Rollback{},
		answer: api.Written{},
		send:   `{"type":"Dataplane","mesh":"default","name":"web","revision":2,"dryRun":true}`,
	},
	"POST /v1/explain": {
		id:     "explain",
		does:   "What becomes of a connection, a request or a name, or what a policy does on a dataplane.",
		body:   explain.Question{},
		answer: explanation{},
		send:   `{"connection":{"mesh":"default","from":"web","to":"192.0.2.2:80"}}`,
	},
	"POST /v1/wait": {
		id:     "wait",
		does:   "Answers when a change is in force, or rejected, or when the time is up.",
		body:   api.Wait{},
		answer: api.Applied{},
		send:   `{"type":"MeshTimeout","mesh":"default","name":"t","for":"applied","timeout":"0s"}`,
	},
	"POST /v1/diff": {
		id:     "diff",
		does:   "What documents would change on the proxies. Nothing is stored.",
		query:  "shadow allNodes mesh dataplane omit delete",
		body:   documents,
		answer: api.Diff{},
		send: "{type: MeshTimeout, mesh: default, name: t, spec: {to: [{targetRef: {kind: Mesh}, " +
			"default: {connectionTimeout: 9s}}]}}",
	},

	"GET /v1/zoneegresses/{name}/status": {id: "zoneEgress", does: "Sync status of the proxy of a ZoneEgress.",
		answer: api.Proxy{}, try: "/v1/zoneegresses/out/status"},
	"GET /v1/zoneingresses/{name}/status": {id: "zoneIngress", does: "Sync status of the proxy of a ZoneIngress.",
		answer: api.Proxy{}, try: "/v1/zoneingresses/in/status"},
	"GET /zoneegresses/{name}/_config": {id: "zoneEgressConfig", does: "What was published for the proxy of a ZoneEgress.",
		query: "computed", answer: api.Config{}, try: "/zoneegresses/out/_config"},
	"GET /zoneingresses/{name}/_config": {id: "zoneIngressConfig", does: "What was published for the proxy of a " +
		"ZoneIngress.", query: "computed", answer: api.Config{}, try: "/zoneingresses/in/_config"},
	"GET /meshes/{mesh}/dataplanes/{name}/_config": {
		id:     "proxyConfig",
		does:   "What was published for a proxy, as xDS in JSON.",
		query:  "include shadow computed",
		answer: api.Config{},
		try:    "/meshes/default/dataplanes/web/_config?shadow=true&include=diff",
	},
	"GET /meshes/{mesh}/dataplanes/{name}/_rules": {
		id:     "proxyRules",
		does:   "What the policies say about a proxy together.",
		query:  "include shadow",
		answer: explain.Rules{},
		try:    "/meshes/default/dataplanes/web/_rules?include=fields,diff",
	},
	"GET /meshes/{mesh}/{plural}/{name}/_hostnames": {id: "hostnames",
		does:   "The hostnames of a MeshService, MeshExternalService or MeshMultiZoneService.",
		answer: api.Hostnames{}, try: "/meshes/default/meshservices/web/_hostnames"},

	"GET /meshes/{mesh}/dataplanes/{name}/xds": {id: "proxyDump", does: "The config that the Envoy of a proxy of this " +
		"node says it has, without secrets.", query: "include_eds", answer: anything{}},
	"GET /meshes/{mesh}/dataplanes/{name}/stats": {id: "proxyStats",
		does: "The statistics of the Envoy of a proxy of this node, as text.", answer: metrics},
	"GET /meshes/{mesh}/dataplanes/{name}/clusters": {id: "proxyClusters",
		does: "The clusters of the Envoy of a proxy of this node, as text.", answer: metrics},
	"GET /zoneegresses/{name}/xds": {id: "zoneEgressDump", does: "The config that the Envoy of a ZoneEgress of this " +
		"node says it has, without secrets.", query: "include_eds", answer: anything{}, try: "/zoneegresses/out/xds"},
	"GET /zoneegresses/{name}/stats": {id: "zoneEgressStats", does: "The statistics of the Envoy of a ZoneEgress of " +
		"this node, as text.", answer: metrics, try: "/zoneegresses/out/stats"},
	"GET /zoneegresses/{name}/clusters": {id: "zoneEgressClusters", does: "The clusters of the Envoy of a ZoneEgress of " +
		"this node, as text.", answer: metrics, try: "/zoneegresses/out/clusters"},
	"GET /zoneingresses/{name}/xds": {id: "zoneIngressDump", does: "The config that the Envoy of a ZoneIngress of this " +
		"node says it has, without secrets.", query: "include_eds", answer: anything{}, try: "/zoneingresses/in/xds"},
	"GET /zoneingresses/{name}/stats": {id: "zoneIngressStats", does: "The statistics of the Envoy of a ZoneIngress of " +
		"this node, as text.", answer: metrics, try: "/zoneingresses/in/stats"},
	"GET /zoneingresses/{name}/clusters": {id: "zoneIngressClusters", does: "The clusters of the Envoy of a ZoneIngress " +
		"of this node, as text.", answer: metrics, try: "/zoneingresses/in/clusters"},
	"GET /zone-ingresses/{name}/xds": {
		id:     "zoneIngressKumaDump",
		does:   "The config that the Envoy of a ZoneIngress, at the path of Kuma says it has, without secrets.",
		query:  "include_eds",
		answer: anything{},
		try:    "/zone-ingresses/in/xds",
	},
	"GET /zone-ingresses/{name}/stats": {id: "zoneIngressKumaStats", does: "The statistics of the Envoy of a " +
		"ZoneIngress, at the path of Kuma, as text.", answer: metrics, try: "/zone-ingresses/in/stats"},
	"GET /zone-ingresses/{name}/clusters": {id: "zoneIngressKumaClusters", does: "The clusters of the Envoy of a " +
		"ZoneIngress, at the path of Kuma, as text.", answer: metrics, try: "/zone-ingresses/in/clusters"},
	"GET /v1/dataplanes/{mesh}/{name}/loggers": {id: "loggersOfProxy",
		does: "The levels of the loggers of the Envoy of a proxy of this node.", answer: api.Loggers{}},
	"PUT /v1/dataplanes/{mesh}/{name}/loggers": {
		id:     "setLoggersOfProxy",
		does:   "Changes levels of the loggers of the Envoy of a proxy of this node.",
		body:   api.Loggers{},
		answer: api.Loggers{},
		send:   `{"levels":{"upstream":"debug"}}`,
	},
	"GET /v1/zoneegresses/{name}/loggers": {id: "loggersOfZoneEgress", does: "The levels of the loggers of the Envoy of " +
		"a ZoneEgress of this node.", answer: api.Loggers{}, try: "/v1/zoneegresses/out/loggers"},
	"PUT /v1/zoneegresses/{name}/loggers": {
		id:     "setLoggersOfZoneEgress",
		does:   "Changes levels of the loggers of the Envoy of a ZoneEgress of this node.",
		body:   api.Loggers{},
		answer: api.Loggers{},
		send:   `{"levels":{"upstream":"debug"}}`,
		try:    "/v1/zoneegresses/out/loggers",
	},
	"GET /v1/zoneingresses/{name}/loggers": {id: "loggersOfZoneIngress", does: "The levels of the loggers of the Envoy " +
		"of a ZoneIngress of this node.", answer: api.Loggers{}, try: "/v1/zoneingresses/in/loggers"},
	"PUT /v1/zoneingresses/{name}/loggers": {
		id:     "setLoggersOfZoneIngress",
		does:   "Changes levels of the loggers of the Envoy of a ZoneIngress of this node.",
		body:   api.Loggers{},
		answer: api.Loggers{},
		send:   `{"levels":{"upstream":"debug"}}`,
		try:    "/v1/zoneingresses/in/loggers",
	},

	"POST /v1/dataplanes/{mesh}/{name}/drain": {
		id:     "drainProxy",
		does:   "Takes a dataplane of this node out of service, or puts it back.",
		body:   api.DrainRequest{},
		answer: api.Drain{},
		send:   `{"undo":true}`,
	},

	"GET /_resources": {id: "resourceTypes", does: "The kinds, as kumactl asks for them.",
		answer: resourceTypes{}},
	"GET /meshes/{mesh}/dataplanes/_overview": {id: "meshDataplaneOverviews", does: "Dataplanes of a mesh with insights.",
		query: "tag gateway ingress name " + paging, answer: page[anything]{}},
	"GET /meshes/{mesh}/dataplanes/{name}/_overview": {id: "dataplaneOverview", does: "A dataplane with its insight.",
		answer: anything{}},
	"GET /dataplanes/_overview": {id: "dataplaneOverviews", does: "Dataplanes with insights.",
		query: "tag gateway ingress name " + paging, answer: page[anything]{}},
	"GET /zoneegresses/_overview": {id: "zoneEgressOverviews", does: "ZoneEgresses with insights.",
		query: "name " + paging, answer: page[anything]{}},
	"GET /zoneingresses/_overview": {id: "zoneIngressOverviews", does: "ZoneIngresses with insights.",
		query: "name " + paging, answer: page[anything]{}},
	"GET /zone-ingresses/_overview": {id: "zoneIngressOverviewsKuma", does: "The same at the path of Kuma.",
		query: "name " + paging, answer: page[anything]{}},
	"GET /zones/_overview": {id: "zoneOverviews", does: "Empty: an agent knows no other zones.", query: paging,
		answer: page[anything]{}},
	"GET /mesh-insights": {id: "meshInsights", does: "Meshes with numbers of dataplanes and policies.", query: paging,
		answer: page[api.MeshInsight]{}},
	"GET /meshes/{mesh}/service-insights": {id: "serviceInsights", does: "Services by tag, with their ready endpoints.",
		query: paging, answer: page[api.ServiceInsight]{}},
	"GET /meshes/{mesh}/dataplanes/{name}/policies": {id: "attachedPolicies",
		does: "Policies that select a dataplane, by kind.", answer: attachmentList{}},
	"GET /meshes/{mesh}/{plural}/{name}/dataplanes": {id: "attachedDataplanes", does: "Dataplanes that a policy selects.",
		answer: page[api.Attached]{}, try: "/meshes/default/meshtimeouts/t/dataplanes"},
	"POST /tokens/{kind}": {id: "tokens", does: "400: nearside token create makes tokens.", answer: nothing{},
		try: "/tokens/dataplane", refused: true},
	"GET /{plural}": {id: "listAll", does: "Resources of a kind, of all meshes; with meta=true each item is an Item.",
		query: "meta " + paging, answer: page[resourceDoc]{}, try: "/dataplanes"},
	"GET /meshes/{mesh}/{plural}": {id: "list", does: "Resources of a kind in a mesh; " +
		"with meta=true each item is an Item.", query: "meta " + paging, answer: page[resourceDoc]{}},
	"GET /{plural}/{name}": {id: "getGlobal", does: "A resource of a global kind; with meta=true an Item.",
		query: "meta format", headers: "If-None-Match", answer: resourceDoc{}, try: "/meshes/default"},
	"PUT /{plural}/{name}": {
		id:      "putGlobal",
		does:    "Creates or changes a resource of a global kind; 201 when it is new.",
		query:   "dryRun",
		headers: "If-Match If-None-Match",
		body:    documents,
		answer:  api.Written{},
		try:     "/meshes/default?dryRun=true",
		send:    "{type: Mesh, name: default}",
	},
	"DELETE /{plural}/{name}": {id: "deleteGlobal", does: "Deletes a resource of a global kind.", query: "dryRun",
		headers: "If-Match", answer: api.Written{}, try: "/zoneegresses/out?dryRun=true"},
	"GET /meshes/{mesh}/{plural}/{name}": {id: "get", does: "A resource; with meta=true an Item.", query: "meta format",
		headers: "If-None-Match", answer: resourceDoc{}},
	"PUT /meshes/{mesh}/{plural}/{name}": {
		id:      "put",
		does:    "Creates or changes a resource; 201 when it is new.",
		query:   "dryRun",
		headers: "If-Match If-None-Match",
		body:    documents,
		answer:  api.Written{},
		try:     "/meshes/default/meshtimeouts/t?dryRun=true",
		send: "{type: MeshTimeout, mesh: default, name: t, spec: {to: [{targetRef: {kind: Mesh}, " +
			"default: {connectionTimeout: 9s}}]}}",
	},
	"DELETE /meshes/{mesh}/{plural}/{name}": {id: "delete", does: "Deletes a resource.", query: "dryRun",
		headers: "If-Match", answer: api.Written{}, try: "/meshes/default/meshtimeouts/t?dryRun=true"},
}
