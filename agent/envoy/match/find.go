package match

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// NoIndex stands for no filter chain, DefaultIndex for the default one.
const (
	NoIndex      = -1
	DefaultIndex = -2
)

// find goes down the tree: the first value that exists at a level is final, there is no way back. It returns the chain's
// index and LevelChain, or NoIndex and the level at which nothing fitted.
func (x *chainIndex) find(s *Seen, rec *levels) (int, Level) {
	rec.start(x)
	port := s.Dst.Port()
	ips, ok := x.ports[port]
	if !ok {
		port = 0
		ips, ok = x.ports[0]
	}
	if !rec.port(LevelDestinationPort, port, ok, ips) {
		return NoIndex, LevelDestinationPort
	}
	names, prefix, ok := ips.find(s.Dst.Addr())
	if !rec.prefix(LevelDestinationIP, prefix, ok, names) {
		return NoIndex, LevelDestinationIP
	}
	transports, name, ok := names.find(s.ServerName)
	if !rec.text(LevelServerName, name, ok, transports) {
		return NoIndex, LevelServerName
	}
	transport := s.Transport
	protocols := transports.get(transport)
	if protocols == nil {
		transport = ""
		protocols = transports.get("")
	}
	if !rec.text(LevelTransportProtocol, transport, protocols != nil, protocols) {
		return NoIndex, LevelTransportProtocol
	}
	direct, alpn, ok := protocols.find(s.Protocols)
	if !rec.text(LevelApplicationProtocol, alpn, ok, direct) {
		return NoIndex, LevelApplicationProtocol
	}
	if direct.tree == nil && rec == nil {
		return direct.only - 1, LevelChain
	}
	types, prefix, ok := direct.grown().find(s.Direct.Addr())
	if !rec.prefix(LevelDirectSourceIP, prefix, ok, types) {
		return NoIndex, LevelDirectSourceIP
	}
	sources, kind, ok := types.find(s)
	if !rec.text(LevelSourceType, sourceTypeNames[kind], ok, sources) {
		return NoIndex, LevelSourceType
	}
	ports, prefix, ok := sources.find(s.Src.Addr())
	if !rec.prefix(LevelSourceIP, prefix, ok, ports) {
		return NoIndex, LevelSourceIP
	}
	source := uint32(s.Src.Port())
	chain, ok := ports[source]
	if !ok {
		source = 0
		chain, ok = ports[0]
	}
	if !rec.last(source, ok, chain) {
		return NoIndex, LevelSourcePort
	}
	return chain, LevelChain
}

// find takes the exact name, the longest suffix, or what asks for no name.
func (l nameLevel) find(name string) (*transportLevel, string, bool) {
	if n, ok := l[name]; ok {
		return n, name, true
	}
	var found *transportLevel
	key := ""
	wildcardKeys(name, func(k string) bool {
		found = l[k]
		key = k
		return found == nil
	})
	if found != nil {
		return found, "*" + key, true
	}
	n, ok := l[""]
	return n, "", ok
}

// find takes the first of the client's protocols that exists, in the client's order.
func (l *protocolLevel) find(protocols []string) (*directIPs, string, bool) {
	for _, p := range protocols {
		if n := l.get(p); n != nil {
			return n, p, true
		}
	}
	n := l.get("")
	return n, "", n != nil
}

// find takes local or external if any chain below is of that type, else any.
func (t *sourceTypes) find(s *Seen) (*sourceIPs, listenerv3.FilterChainMatch_ConnectionSourceType, bool) {
	kind := listenerv3.FilterChainMatch_EXTERNAL
	if s.isLocal() {
		kind = listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK
	}
	if t[kind].empty() {
		kind = listenerv3.FilterChainMatch_ANY
	}
	return &t[kind], kind, !t[kind].empty()
}
