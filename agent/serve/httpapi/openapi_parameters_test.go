package httpapi_test

// parameters are what the parameters of queries and the headers mean.
var parameters = map[string]string{
	"verbose": "Also the checks that are well.", "verb": "get, list, inspect, create, update, delete or read-logs.",
	"feature": "Features that the written resource needs: patch-unsafe, log-path, or both with a comma.",
	"kind":    "A kind, by any of its names.", "mesh": "The name of a mesh.", "name": "The name of a resource, " +
		"or a part of it in overviews.", "dataplane": "The name of a dataplane.", "size": "Items on a page.",
	"offset": "Items before the page.", "profile": "heap, allocs, goroutine, threadcreate, block, mutex or cpu.",
	"seconds": "How long a CPU profile takes, at most 30.", "prefix": "What the names begin with.",
	"include": "What else the document has, separated by commas: diff, fields or reach, by the path.",
	"backend": "The name of a service: reach is about it alone.",
	"dryRun":  "true: nothing is stored, and the answer says what would change.",
	"format":  "universal (default), or k8s for the Kubernetes format.",
	"meta":    "true: with revision, source, author and times.", "shadow": "true: shadow policies act like the others.",
	"computed":      "true: as it was computed, with what the check withholds.",
	"allNodes":      "true: also dataplanes, conflicts or logs of other nodes.",
	"log":           "access (default), audit or dns.",
	"since":         "Older lines or revisions are left out: a duration such as 10m, or a time.",
	"status":        "Status codes, classes and ranges, such as 5xx,404.",
	"where":         "A condition such as duration>500ms; repeatable.",
	"by":            "Field by whose values lines are counted.",
	"step":          "With by=time: seconds of the intervals in which lines are counted.",
	"tail":          "true: the last lines of each file instead of the first ones.",
	"follow":        "true: also later lines, when they are written, for up to 5 minutes.",
	"limit":         "Number of lines at most; 1000 by default.",
	"signer":        "The fingerprint of a key, or unsigned: records with this signer.",
	"from":          "The name of the service that calls.",
	"to":            "The name of the service that is called.",
	"types":         "Events to send: change, proxy, ack, nack, problem, separated by commas; all by default.",
	"listed":        "true: only pairs that a dataplane lists or that had traffic.",
	"type":          "A kind, by any of its names.",
	"author":        "Who made the change.",
	"source":        "Where the content comes from: a kind of source such as api or file, or the whole source.",
	"all":           "true: also pairs that no outbound connects, and denied ones that no dataplane lists.",
	"omit":          "patch, items or both: these stay empty in the answer.",
	"delete":        "TYPE/MESH/NAME that would be deleted; repeatable.",
	"include_eds":   "true: with the endpoints of clusters.",
	"tag":           "KEY:VALUE that the dataplane has; repeatable.",
	"ingress":       "true or false, as kumactl sends; without effect, as in Kuma.",
	"gateway":       "true: gateways alone; false: none of them.",
	"If-Match":      "The ETag that the resource must have.",
	"If-None-Match": "The ETag that is known, or * to create only.",
}

// inPath are what the parameters in paths mean.
var inPath = map[string]string{
	"mesh":   "The name of a mesh.",
	"plural": "The kind: its plural, as in GET /_resources, or another of its names.",
	"name":   "The name of the object.",
	"kind":   "The kind, by any of its names; for tokens, the kind of token.",
	"item":   "config or log.",
}
