package match

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// NetworkInputs is the package of connection inputs.
const NetworkInputs = envoy.TypePrefix + "envoy.extensions.matching.common_inputs.network.v3."

// NetworkInputNames lists the inputs of a filter_chain_matcher. It is true for those that this
// package evaluates.
var NetworkInputNames = map[string]bool{
	"DestinationIPInput": true, "DestinationPortInput": true, "SourceIPInput": true, "SourcePortInput": true,
	"DirectSourceIPInput": true, "SourceTypeInput": true, "ServerNameInput": true, "TransportProtocolInput": true,
	"ApplicationProtocolInput": true, "FilterStateInput": false, "DynamicMetadataInput": false,
	"NetworkNamespaceInput": false,
}

// input returns an input of a connection as a string, also for ports.
func (s *Seen) input(config *anypb.Any) (value string, ok, known bool) {
	name, is := strings.CutPrefix(config.GetTypeUrl(), NetworkInputs)
	if !is || !NetworkInputNames[name] {
		return "", false, false
	}
	switch name {
	case "DestinationIPInput":
		return addrText(s.Dst.Addr()), s.Dst.IsValid(), true
	case "DestinationPortInput":
		return strconv.Itoa(int(s.Dst.Port())), s.Dst.IsValid(), true
	case "SourceIPInput":
		return addrText(s.Src.Addr()), s.Src.IsValid(), true
	case "SourcePortInput":
		return strconv.Itoa(int(s.Src.Port())), s.Src.IsValid(), true
	case "DirectSourceIPInput":
		return addrText(s.Direct.Addr()), s.Direct.IsValid(), true
	case "SourceTypeInput":
		return "local", s.isLocal(), true
	case "ServerNameInput":
		return s.ServerName, s.ServerName != "", true
	case "TransportProtocolInput":
		return s.Transport, s.Transport != "", true
	default: // ApplicationProtocolInput
		return "'" + strings.Join(s.Protocols, "','") + "'", len(s.Protocols) > 0, true
	}
}

// ChainNameOf returns the filter chain name in the action of a filter_chain_matcher.
func ChainNameOf(action *anypb.Any) (string, bool) {
	var name wrapperspb.StringValue
	if err := action.UnmarshalTo(&name); err != nil {
		return "", false
	}
	return name.GetValue(), true
}

func entryText(i int) string { return "entry " + strconv.Itoa(i) }
