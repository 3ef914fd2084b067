package finding

import (
	"cmp"
	"slices"
)

// Rule is one rule that configs are checked against. Numbers up to 120 come from the project's list
// of configs that Envoy rejects or cannot use; numbers from 200 are specific to this package.
type Rule struct {
	Number   int
	Severity Severity // the worst severity of its findings
	Title    string   // property of a valid config
	// Unchecked is the reason why the rule is not checked; "" if it is.
	Unchecked string
}

// Title returns the property of a valid config by a rule; "" for an unknown number.
func Title(number int) string {
	rules := Rules()
	i, ok := slices.BinarySearchFunc(rules, number, func(r Rule, n int) int { return cmp.Compare(r.Number, n) })
	if !ok {
		return ""
	}
	return rules[i].Title
}

// Rules returns the rules, sorted by number.
func Rules() []Rule {
	return []Rule{
		{0, Reject, "A message cannot be decoded, or breaks a rule that the API carries as an annotation", ""},
		{1, Reject, "A listener has an IP address and a port, a pipe or internal_listener", ""},
		{2, Reject, "A TCP listener has a filter chain or a default one", ""},
		{3, Reject, "No two filter chains have the same filter_chain_match", ""},
		{4, Reject, "No two filter chains match the same combination of values", ""},
		{5, Reject, "A wildcard in server_names is the whole first label", ""},
		{6, Reject, "address_suffix and suffix_len are not implemented", ""},
		{7, Reject, "CIDR ranges of filter chains are valid", ""},
		{8, Reject, "Filter chains that a matcher chooses have unique names", ""},
		{9, Unusable, "A matcher leads to filter chains that exist", ""},
		{10, Reject, "An address has one listener, bound or not", ""},
		{11, Reject, "An update does not change a listener's reuse_port", ""},
		{12, Reject, "An update does not change socket options while reuse_port is off", ""},
		{13, Reject, "All addresses of a listener have one protocol", ""},
		{14, Reject, "ipv4_compat is for :: and IPv4-mapped addresses", ""},
		{15, Reject, "Multipath TCP is for IP addresses and TCP", "Envoy names it; the policy is left out"},
		{16, Reject, "An internal listener has no socket", ""},
		{17, Reject, "An internal address needs internal_listener", ""},
		{18, Reject, "A UDP listener has no filter chains but those of QUIC", ""},
		{19, Reject, "connection_balance_config names a type", ""},
		{20, Reject, "The last network filter is terminal", ""},
		{21, Reject, "No other network filter is terminal", ""},
		{22, Unusable, "A filter chain has filters", ""},
		{23, Reject, "Extensions have a type that Envoy knows at this field", ""},
		{24, Reject, "TLS contexts are for the correct side, upstream or downstream", ""},
		{25, Reject, "The host lets Envoy bind the address", ""},
		{26, Reject, "Listeners have unique names", ""},
		{27, Unusable, "The inspectors that filter chains need are present and enabled", ""},
		{28, Warning, "A server that speaks first is not behind an inspector",
			"the config does not say whether a server speaks first; explain connection reports a connection that hangs"},
		{29, Warning, "Filters that need the original port follow original_dst", ""},
		{30, Reject, "The access logs of a listener are valid",
			"the rules for access logs, 105 to 108, check them"},
		{31, Unusable, "Clusters that receive traffic exist", ""},
		{32, Reject, "Inputs of a filter_chain_matcher are those of connections", ""},
		{33, Reject, "Actions of a filter_chain_matcher name filter chains", ""},
		{34, Reject, "Inputs and matchers are of one type", "every input that rule 32 allows is a string"},
		{35, Reject, "A matcher has a list or a tree that is not empty", ""},
		{36, Reject, "Ranges of an IPMatcher are valid", ""},
		{37, Reject, "Domains of a ServerNameMatcher are valid and unique", ""},
		{38, Warning, "Ports are written as Envoy compares them", ""},
		{39, Lint, "Connections without a match have a default filter chain",
			"this is not a fault; explain connection reports closed connections"},
		{40, Reject, "No HTTP filter but the last is terminal", ""},
		{41, Reject, "The last HTTP filter is terminal", ""},
		{42, Unusable, "The list of HTTP filters is not empty", ""},
		{43, Reject, "There is one source of routes", ""},
		{44, Reject, "Upgrades are configured once", ""},
		{45, Reject, "The filters of an upgrade end in a terminal one", ""},
		{46, Reject, "original_ip_detection_extensions exclude other settings", "Envoy names it; the policy is left out"},
		{47, Reject, "One way of stripping ports is set", ""},
		{48, Reject, "HTTP/3 is for QUIC", "Envoy names it; the policy is left out"},
		{49, Reject, "Internal address ranges are valid", ""},
		{50, Reject, "Formats of local replies are valid", ""},
		{51, Reject, "Tracers have a known type, and their cluster exists", ""},
		{52, Reject, "Per-route filter configs have the type of their filter", ""},
		{53, Reject, "A domain has one virtual host", ""},
		{54, Reject, "At most one virtual host matches any domain", ""},
		{55, Warning, "Virtual hosts have unique names", ""},
		{56, Warning, "A domain has at most one wildcard", ""},
		{57, Reject, "Regular expressions are valid RE2", ""},
		{58, Reject, "Regular expressions are not too large for the runtime limit", ""},
		{59, Reject, "path_separated_prefix has no query, fragment or slash at the end", ""},
		{60, Reject, "The sum of weights is above 0", ""},
		{61, Reject, "The sum of weights fits 32 bits", ""},
		{62, Reject, "A weighted cluster has a name or a header", ""},
		{63, Reject, "Clusters of routes that Envoy validates exist", ""},
		{64, Reject, "Bodies of direct responses are not too long", ""},
		{65, Reject, "One way of rewriting the path is set", ""},
		{66, Reject, "Retry intervals are in order", ""},
		{67, Warning, "Conditions of retries are known", ""},
		{68, Reject, "Header mutations change mutable headers, with valid formats", ""},
		{69, Reject, "A virtual host has routes or a matcher", ""},
		{70, Warning, "Ranges of header values are not empty", ""},
		{71, Reject, "Durations are not negative and in range", ""},
		{72, Reject, "A route configuration has the requested name", ""},
		{73, Reject, "Clusters have unique names", ""},
		{74, Reject, "ORIGINAL_DST goes with CLUSTER_PROVIDED", ""},
		{75, Reject, "CLUSTER_PROVIDED goes with cluster types that provide a balancer", ""},
		{76, Reject, "An ORIGINAL_DST cluster has no endpoints and no subsets", ""},
		{77, Reject, "The header with the original destination has a name", "Envoy loads it, and finds no such header"},
		{78, Reject, "Endpoints of a STATIC cluster are IP addresses", ""},
		{79, Reject, "Endpoints of a DNS cluster are host names", ""},
		{80, Reject, "A LOGICAL_DNS cluster has one endpoint", ""},
		{81, Reject, "EDS has a config source, and config sources use clusters of the bootstrap", ""},
		{82, Reject, "Endpoints have the requested name", ""},
		{83, Reject, "The sum of the endpoint weights of a locality fits 32 bits", ""},
		{84, Reject, "Priorities are at most 128", ""},
		{85, Reject, "Ejection times are in order, percentages at most 100", ""},
		{86, Reject, "Ring sizes are in order, Maglev tables prime", ""},
		{87, Reject, "HTTP options of a cluster set the protocol exactly once", ""},
		{88, Reject, "HTTP options have the correct key", ""},
		{89, Reject, "Connect timeouts are above 0", ""},
		{90, Unusable, "No cluster is removed while it is in use", ""},
		{91, Unusable, "No cluster has the name of one of the bootstrap", ""},
		{92, Reject, "Certificates and keys are valid and match", ""},
		{93, Reject, "A client has one certificate", ""},
		{94, Reject, "Certificates are set in only one way", ""},
		{95, Reject, "Validation of peer names requires trusted authorities", ""},
		{96, Reject, "TLS versions are in order; ciphers, groups, and ALPN protocols are valid", ""},
		{97, Reject, "Secrets have names and the required type", ""},
		{98, Unusable, "Secrets exist", ""},
		{99, Reject, "RBAC policies have permissions and principals", ""},
		{100, Reject, "The network RBAC filter has a stat prefix and does not match headers", ""},
		{101, Reject, "RBAC rules are valid", ""},
		{102, Warning, "RBAC has rules or a matcher", ""},
		{103, Reject, "Envoy can inject the faults", ""},
		{104, Warning, "Fractions are at most the whole", ""},
		{105, Reject, "Formats of access logs are valid", ""},
		{106, Reject, "Envoy can open the files of its logs", ""},
		{107, Reject, "Filters of access logs are not empty", ""},
		{108, Reject, "Clusters of gRPC services exist", ""},
		{109, Reject, "The address of a tcp access log is a format", "it becomes a log format, which rule 105 checks"},
		{110, Lint, "Fields are known", "Envoy accepts and counts unknown fields"},
		{111, Reject, "Resources have unique names, equal in the wrapper and in the resource", ""},
		{112, Reject, "xdstp names are valid", ""},
		{113, Unusable, "Resources that another resource waits for exist", ""},
		{114, Reject, "Resources are removed as their type requires", "a guarantee of the server, not of configs"},
		{115, Reject, "Endpoints are resent after their cluster", "a guarantee of the server, not of configs"},
		{116, Reject, "Reconnections resume", "a guarantee of the server, not of configs"},
		{117, Reject, "Wildcard subscriptions stay", "a guarantee of the server, not of configs"},
		{118, Unusable, "Resources arrive before initial_fetch_timeout", "a guarantee of the server, not of configs"},
		{119, Reject, "Messages do not exceed the clients' limit", "a guarantee of the server, not of configs"},
		{120, Reject, "Rejections and acknowledgements are distinguished", "a guarantee of the server, not of configs"},
		{201, Warning, "No range of length 0 coexists with filter chains without a range", ""},
		{202, Warning, "No filter chain is hidden by a more specific port or address", ""},
		{203, Reject, "The fields of a cluster are compatible", ""},
		{204, Reject, "Health checks can be sent", ""},
		{205, Reject, "The fields of an HTTP filter are compatible", ""},
		{206, Reject, "The fields of a route or a tunnel are compatible", ""},
	}
}
