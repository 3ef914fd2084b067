package passthrough_test

import (
	"fmt"
	"net/netip"
	"strings"
)

// mesh and the dataplane "d" with a transparent proxy.
const (
	base = "type: Mesh\nname: default\nnetworking: {outbound: {passthrough: false}}\n" +
		"---\ntype: Dataplane\nmesh: default\nname: d\nnetworking: {address: 192.168.0.1, inbound: [{port: 8080, " +
		"tags: {kuma.io/service: web, kuma.io/protocol: http}}], " +
		"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}\n"
	// database is a service whose servers may send first.
	database = "---\ntype: Dataplane\nmesh: default\nname: db\n" +
		"networking: {address: 192.168.0.2, inbound: [{port: 3306, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}\n"
)

// matchText converts matches such as "tls api.example.com:443", "tcp 10.0.0.0/8", and "http
// [2001:db8::1]:80": protocol, value, and an optional port.
func matchText(s string) string {
	protocol, value, _ := strings.Cut(s, " ")
	port := ""
	if _, err := netip.ParseAddrPort(value); err == nil {
		i := strings.LastIndexByte(value, ':')
		value, port = strings.Trim(value[:i], "[]"), value[i+1:]
	} else if _, err := netip.ParseAddr(value); err != nil {
		if i := strings.LastIndexByte(value, ':'); i > strings.LastIndexByte(value, '/') && i >= 0 &&
			(strings.Contains(value, "/") || strings.Count(value, ":") == 1) {
			value, port = value[:i], value[i+1:]
		}
	}
	typ := "Domain"
	if _, err := netip.ParseAddr(value); err == nil {
		typ = "IP"
	} else if _, err := netip.ParsePrefix(value); err == nil {
		typ = "CIDR"
	}
	out := fmt.Sprintf(`{"type":%q,"value":%q,"protocol":%q`, typ, value, protocol)
	if port != "" {
		out += `,"port":` + port
	}
	return out + "}"
}

// matched returns a policy for the dataplane with matches in the form of matchText.
func matched(name string, matches ...string) string {
	list := make([]string, len(matches))
	for i, m := range matches {
		list[i] = matchText(m)
	}
	return policyOf(name, `{"passthroughMode":"Matched","appendMatch":[`+strings.Join(list, ",")+`]}`)
}

func policyOf(name, conf string) string {
	return "---\n" + document(name, `{"kind":"Dataplane","name":"d"}`, conf) + "\n"
}

func document(name, ref, conf string) string {
	return fmt.Sprintf(`{"type":"MeshPassthrough","mesh":"default","name":%q,"spec":{"targetRef":%s,"default":%s}}`,
		name, ref, conf)
}
