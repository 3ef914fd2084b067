package finding

import (
	"cmp"
	"slices"
)

// Rule is one rule that configs are checked against. The numbers up to 120 are those of the
// project's list of what Envoy refuses or cannot use; those from 200 on are of this package.
type Rule struct {
	Number   int
	Severity Severity // the worst that a breach can have
	Title    string   // what holds of a good config
	// Unchecked is why nothing here checks the rule, "" for one that is checked.
	Unchecked string
}

// Title says what holds of a good config by a rule, "" for a number that no rule has.
func Title(number int) string {
	rules := Rules()
	i, ok := slices.BinarySearchFunc(rules, number, func(r Rule, n int) int { return cmp.Compare(r.Number, n) })
	if !ok {
		return ""
	}
	return rules[i].Title
}

// Rules lists the rules, by number.
func Rules() []Rule {
	return []Rule{
		{0, Reject, "A message cannot be decoded, or breaks a rule that the API carries as an annotation", ""},
		{1, Reject, "A listener has an IP address and a port, a pipe or internal_listener", ""},
		{2, Reject, "A TCP listener has a filter chain or a default one", ""},
		{3, Reject, "No two filter chains have the same filter_chain_match", ""},
		{4, Reject, "No two filter chains ask for the same combination of values", ""},
		{5, Reject, "A star in server_names is a whole first label", ""},
		{6, Reject, "address_suffix and suffix_len are not implemented", ""},
		{7, Reject, "CIDR ranges of filter chains can be read", ""},
		{8, Reject, "Filter chains that a matcher chooses have unique names", ""},
		{9, Unusable, "A matcher leads to filter chains that exist", ""},
		{10, Reject, "An address has one listener, bound or not", ""},
		{11, Reject, "reuse_port stays as it is while a listener is updated", ""},
		{12, Reject, "Socket options stay as they are while reuse_port is off", ""},
		{13, Reject, "All addresses of a listener are of one protocol", ""},
		{14, Reject, "ipv4_compat is for :: and IPv4-mapped addresses", ""},
		{15, Reject, "Multipath TCP is for IP addresses and TCP", ""},
		{16, Reject, "An internal listener has no socket", ""},
		{17, Reject, "An internal address needs internal_listener", ""},
		{18, Reject, "A UDP listener has no filter chains but those of QUIC", ""},
		{19, Reject, "connection_balance_config names a type", ""},
		{20, Reject, "The last network filter is terminal", ""},
		{21, Reject, "No other network filter is terminal", ""},
		{22, Unusable, "A filter chain has filters", ""},
		{23, Reject, "Extensions are of a type that Envoy knows in their place", ""},
		{24, Reject, "TLS contexts stand on their side", ""},
		{25, Reject, "The host lets Envoy bind the address", ""},
		{26, Reject, "Listeners have unique names", ""},
		{27, Unusable, "The inspectors that filter chains need are there and on", ""},
		{28, Warning, "A server that speaks first is not behind an inspector",
			"whether a server speaks first is not in the config; the engine tells of a connection whether it hangs"},
		{29, Warning, "What asks for the original port stands behind original_dst", ""},
		{30, Reject, "The access logs of a listener can be loaded",
			"they are checked by the rules about access logs, 105 to 108"},
		{31, Unusable, "Clusters that traffic is sent to exist", ""},
		{32, Reject, "Inputs of a filter_chain_matcher are those of connections", ""},
		{33, Reject, "Actions of a filter_chain_matcher name filter chains", ""},
		{34, Reject, "Inputs and matchers are of one type", "every input that rule 32 admits is a text, and so fits"},
		{35, Reject, "A matcher has a list or a tree with something in it", ""},
		{36, Reject, "Ranges of an IPMatcher can be read and are unique", ""},
		{37, Reject, "Domains of a ServerNameMatcher can be read and are unique", ""},
		{38, Warning, "Ports are written as Envoy compares them", ""},
		{39, Lint, "What matches nothing has a default filter chain",
			"it is no fault; the engine tells which connections are closed"},
		{40, Reject, "No HTTP filter but the last is terminal", ""},
		{41, Reject, "The last HTTP filter is terminal", ""},
		{42, Unusable, "There are HTTP filters", ""},
		{43, Reject, "There is one source of routes", ""},
		{44, Reject, "Upgrades are configured once", ""},
		{45, Reject, "The filters of an upgrade end in a terminal one", ""},
		{46, Reject, "original_ip_detection_extensions stand alone", ""},
		{47, Reject, "One way of stripping ports is set", ""},
		{48, Reject, "HTTP/3 is for QUIC", ""},
		{49, Reject, "Internal address ranges can be read", ""},
		{50, Reject, "Formats of local replies can be read", ""},
		{51, Reject, "Tracers are of a known type and have their cluster", ""},
		{52, Reject, "Configs of filters on routes are of their filter", ""},
		{53, Reject, "A domain has one virtual host", ""},
		{54, Reject, "One virtual host takes any domain", ""},
		{55, Warning, "Virtual hosts have unique names", ""},
		{56, Warning, "A domain has one star", ""},
		{57, Reject, "Regular expressions are of RE2", ""},
		{58, Reject, "Regular expressions are not too large for the runtime limit", ""},
		{59, Reject, "path_separated_prefix has no query, fragment or slash at the end", ""},
		{60, Reject, "Weights sum up to more than 0", ""},
		{61, Reject, "Weights sum up to 32 bits", ""},
		{62, Reject, "A weighted cluster has a name or a header", ""},
		{63, Reject, "Clusters of routes that Envoy validates exist", ""},
		{64, Reject, "Bodies of direct responses are not too long", ""},
		{65, Reject, "One way of rewriting the path is set", ""},
		{66, Reject, "Retry intervals are in order", ""},
		{67, Warning, "Conditions of retries are known", ""},
		{68, Reject, "Headers that are changed may be changed, and their values are formats", ""},
		{69, Reject, "A virtual host has routes or a matcher", ""},
		{70, Warning, "Ranges of header values hold something", ""},
		{71, Reject, "Durations are not negative and in range", ""},
		{72, Reject, "A route configuration has the name that was asked for", ""},
		{73, Reject, "Clusters have unique names", ""},
		{74, Reject, "ORIGINAL_DST goes with CLUSTER_PROVIDED", ""},
		{75, Reject, "CLUSTER_PROVIDED goes with cluster types that bring a balancer", ""},
		{76, Reject, "An ORIGINAL_DST cluster has no endpoints and no subsets", ""},
		{77, Reject, "The header with the original destination has a name", ""},
		{78, Reject, "Endpoints of a STATIC cluster are IP addresses", ""},
		{79, Reject, "Endpoints of a DNS cluster are host names", ""},
		{80, Reject, "A LOGICAL_DNS cluster has one endpoint", ""},
		{81, Reject, "EDS says where it comes from, and config comes from clusters of the bootstrap", ""},
		{82, Reject, "Endpoints have the name that was asked for", ""},
		{83, Reject, "Weights of endpoints and localities sum up to 32 bits", ""},
		{84, Reject, "Priorities are at most 128", ""},
		{85, Reject, "Ejection times are in order, percentages at most 100", ""},
		{86, Reject, "Ring sizes are in order, Maglev tables prime", ""},
		{87, Reject, "HTTP options of a cluster say which protocol, and only once", ""},
		{88, Reject, "HTTP options stand under their key", ""},
		{89, Reject, "Connect timeouts are above 0", ""},
		{90, Unusable, "No cluster is removed while it is in use", ""},
		{91, Unusable, "No cluster has the name of one of the bootstrap", ""},
		{92, Reject, "Certificates and keys can be read and belong together", ""},
		{93, Reject, "A client has one certificate", ""},
		{94, Reject, "Certificates are given in one way", ""},
		{95, Reject, "Who checks names of peers knows their authorities", ""},
		{96, Reject, "TLS versions are in order, ciphers and groups known", ""},
		{97, Reject, "Secrets have names and are of the kind that is wanted", ""},
		{98, Unusable, "Secrets exist", ""},
		{99, Reject, "RBAC policies have permissions and principals", ""},
		{100, Reject, "The network RBAC filter has a stat prefix and asks for no headers", ""},
		{101, Reject, "RBAC rules can be read", ""},
		{102, Warning, "RBAC has rules or a matcher", ""},
		{103, Reject, "Faults are such that Envoy can inject", ""},
		{104, Warning, "Fractions are at most the whole", ""},
		{105, Reject, "Formats of access logs can be read", ""},
		{106, Reject, "Envoy can open the files of its logs", ""},
		{107, Reject, "Filters of access logs say something", ""},
		{108, Reject, "Clusters of gRPC services exist", ""},
		{109, Reject, "The address of a tcp access log is a format", "it becomes a format of a log, which rule 105 is about"},
		{110, Lint, "Fields are known", "Envoy accepts and counts fields that it does not know"},
		{111, Reject, "Resources have unique names and are named alike inside and outside", ""},
		{112, Reject, "xdstp names can be read", ""},
		{113, Unusable, "What a resource waits for exists", ""},
		{114, Reject, "Resources are removed as their type asks for", "a promise of the server, not of configs"},
		{115, Reject, "Endpoints are sent again after their cluster", "a promise of the server, not of configs"},
		{116, Reject, "Reconnections resume", "a promise of the server, not of configs"},
		{117, Reject, "Wildcard subscriptions stay", "a promise of the server, not of configs"},
		{118, Unusable, "Resources come before initial_fetch_timeout", "a promise of the server, not of configs"},
		{119, Reject, "Messages are not larger than clients take", "a promise of the server, not of configs"},
		{120, Reject, "Rejections are told from acknowledgements", "a promise of the server, not of configs"},
		{201, Warning, "No range of length 0 stands beside filter chains without a range", ""},
		{202, Warning, "No filter chain is hidden by a more specific port or address", ""},
		{203, Reject, "The parts of a cluster go together", ""},
		{204, Reject, "Health checks can be sent", ""},
		{205, Reject, "The parts of an HTTP filter go together", ""},
		{206, Reject, "The parts of a route or a tunnel go together", ""},
	}
}
