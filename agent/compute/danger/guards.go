package danger

import (
	"crypto/sha256"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// guardTypes are parts of the names of packed messages that decide who may connect or send
// requests, or that contain certificates. Transport sockets also are guards.
var guardTypes = [...]string{".rbac.", ".ext_authz.", ".jwt_authn.", ".oauth2.", ".basic_auth.", ".api_key_auth.",
	".csrf.", ".client_ssl_auth.", ".transport_sockets.tls.v3.Secret"}

// Unguarded returns what restricts access in an encoded resource, but not in another form of it:
// the name of a filter or transport socket, "a filter chain", or "a direct response". It returns ""
// if the other form restricts access as much. Forms that cannot be decoded restrict nothing.
func Unguarded(typeURL string, from, to []byte) string {
	a, b := guards{}, guards{}
	a.packed(&anypb.Any{TypeUrl: typeURL, Value: from})
	b.packed(&anypb.Any{TypeUrl: typeURL, Value: to})
	if b.chains > a.chains || b.anyChain && !a.anyChain {
		return "a filter chain match"
	}
	missing := ""
	for g, n := range a.count {
		if b.count[g] < n && (missing == "" || g.name < missing) {
			missing = g.name
		}
	}
	return missing
}

// guard is one part of a resource that restricts access.
type guard struct {
	name   string
	digest [sha256.Size]byte
}

// guards are the parts of a resource that restrict access.
type guards struct {
	count    map[guard]int
	chains   int  // filter chains
	anyChain bool // there is a default filter chain
}

func (g *guards) add(name string, body []byte) {
	if g.count == nil {
		g.count = map[guard]int{}
	}
	g.count[guard{name, sha256.Sum256(body)}]++
}

// packed adds the guards of a packed message.
func (g *guards) packed(a *anypb.Any) {
	name := a.GetTypeUrl()[strings.LastIndexByte(a.GetTypeUrl(), '/')+1:]
	m, err := a.UnmarshalNew()
	if err == nil && strings.HasSuffix(name, ".TypedStruct") {
		if fd := m.ProtoReflect().Descriptor().Fields().ByName("type_url"); fd != nil {
			name = m.ProtoReflect().Get(fd).String()
		}
	}
	for _, segment := range guardTypes {
		if strings.Contains(name, segment) {
			g.add(name, a.GetValue())
			return
		}
	}
	if err == nil {
		g.message(m.ProtoReflect())
	}
}

func (g *guards) message(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *anypb.Any:
		g.packed(x)
		return
	case *corev3.TransportSocket:
		a := x.GetTypedConfig()
		g.add(a.GetTypeUrl()[strings.LastIndexByte(a.GetTypeUrl(), '/')+1:], a.GetValue())
		return
	case *listenerv3.Listener:
		g.chains, g.anyChain = len(x.GetFilterChains()), x.GetDefaultFilterChain() != nil
	case *routev3.DirectResponseAction:
		if x.GetStatus() >= 400 {
			body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(x)
			g.add("a direct response", body)
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					g.message(v.Message())
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				g.message(v.List().Get(i).Message())
			}
		default:
			g.message(v.Message())
		}
		return true
	})
}
