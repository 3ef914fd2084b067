package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// admissionTimeout bounds the question to the agent.
const admissionTimeout = 5 * time.Second

// askAgent asks the agent behind a connection of the user whether the user may be the proxy. It
// reports whether the agent answered.
func (t *bootstrapTest) askAgent(ctx context.Context, conn net.Conn) bool {
	used := false
	dial := func(context.Context, string) (net.Conn, error) {
		if used {
			return nil, fmt.Errorf("the connection has ended")
		}
		used = true
		return conn, nil
	}
	answered := t.ask(ctx, "passthrough:///agent", insecure.NewCredentials(), grpc.WithContextDialer(dial))
	if !used {
		_ = conn.Close()
	}
	return answered
}

// checkXDSAddress tests the files for TLS, and asks the agent at an address. It reports whether the
// agent answered.
func (t *bootstrapTest) checkXDSAddress(ctx context.Context) bool {
	a := t.b.XDSAddress
	readable := true
	for _, file := range []string{a.CA, a.Cert, a.Key} {
		if file == "" {
			continue
		}
		if p := t.as.Read(file); p != nil {
			readable = false
			t.problem("tls", file, p, "")
		}
	}
	if !readable {
		return false
	}
	creds := insecure.NewCredentials()
	if a.CA != "" {
		config, err := client.TLSConfig(&a)
		if err != nil {
			t.add(checkFail, "tls", "create the files again; see docs/xds.md", "%v", err)
			return false
		}
		creds = credentials.NewTLS(config)
	}
	return t.ask(ctx, "passthrough:///"+a.Address, creds)
}

// ask asks the agent without opening a stream, so that nothing is stored. It reports whether the
// agent answered.
func (t *bootstrapTest) ask(ctx context.Context, target string, creds credentials.TransportCredentials,
	more ...grpc.DialOption) bool {
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	conn, err := grpc.NewClient(target, append(more, grpc.WithTransportCredentials(creds), grpc.WithDisableRetry())...)
	if err != nil {
		t.add(checkFail, "agent", "correct the address in the bootstrap", "%v", err)
		return false
	}
	defer conn.Close()
	if t.b.Authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", t.b.Authorization)
	}
	n := t.b.Node
	request := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: n.GetId(), Metadata: n.GetMetadata(),
		UserAgentName: "envoy"}}
	answer := &wrapperspb.BytesValue{}
	err = conn.Invoke(ctx, "/"+api.AdmissionService+"/"+api.AdmissionMethod, request, answer)
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.OK:
		var a api.Admission
		if err := json.Unmarshal(answer.GetValue(), &a); err != nil {
			t.add(checkFail, "agent", "upgrade the agent or this command", "the answer of the agent is invalid: %v", err)
			return false
		}
		t.admission(&a)
		return true
	case codes.Unauthenticated:
		t.add(checkFail, "token", "nearside token inspect FILE shows the token; "+
			t.tokenCommand()+" creates one", "%s", message)
	case codes.InvalidArgument:
		t.add(checkFail, "node-id", "correct node in the bootstrap", "%s", message)
	case codes.Unimplemented:
		t.add(checkWarn, "agent", "upgrade the agent", "this agent cannot test access over its xDS socket")
	case codes.Unavailable, codes.DeadlineExceeded:
		if a := t.b.XDSAddress.Address; a != "" {
			t.add(checkFail, "agent", "correct the address, or start the agent with xds.tcp; "+
				"an agent with xds.tls needs a bootstrap with --xds-ca", "no agent answers at %s: %s", a, cause(message))
			break
		}
		t.add(checkWarn, "agent", "start the agent, or look at its log; an Envoy waits for it",
			"the agent does not answer: %s", cause(message))
	default:
		t.add(checkFail, "access", "see nearside status of the agent", "%s", message)
	}
	return false
}

// cause returns the part of an error of gRPC that follows "desc = ".
func cause(message string) string {
	_, quoted, ok := strings.Cut(message, "desc = ")
	if text, err := strconv.Unquote(quoted); ok && err == nil {
		return text
	}
	return message
}

// admission adds the answer of the agent.
func (t *bootstrapTest) admission(a *api.Admission) {
	if len(a.Untested) > 0 {
		t.add(checkWarn, "pins", "start the Envoy in its unit or pod; nearside status then shows whether it is refused",
			"only the Envoy itself can be tested for %s", strings.Join(a.Untested, " and "))
	}
	if !a.Allowed {
		t.add(checkFail, "access", "nearside access shows the rules; the reason names what to set if this is intended",
			"%s", a.Reason)
		return
	}
	t.add(CheckOK, "access", "", "%s may use the node id %s: %s", t.as, t.ref.NodeID(), a.Rule)
	switch {
	case a.Stored:
		t.add(CheckOK, "resource", "", "%s exists", t.ref.Key())
	case a.Brought:
		t.add(CheckOK, "resource", "", "the node metadata has %s", t.ref.Key())
	default:
		t.missing(a.Nearest)
	}
}

// missing adds that the resource of the proxy does not exist.
func (t *bootstrapTest) missing(nearest []string) {
	hint := t.ref.Remedy()
	if len(nearest) > 0 {
		hint = "correct the node id if " + strings.Join(nearest, " or ") + " is meant; else " + hint
	}
	t.add(checkFail, "resource", hint, "%s does not exist, so the Envoy gets no config", t.ref.Key())
}

// checkStored asks over the API whether the Dataplane exists, if the agent could not be asked over
// the xDS socket.
func (t *bootstrapTest) checkStored(ctx context.Context, env *command.Env) {
	if t.ref.Type != node.ProxyDataplane {
		return
	}
	names, err := env.Quick(command.CompletionTime).Names(ctx, "dataplanes", t.ref.Mesh, "")
	if err != nil {
		return // no agent, or no right to ask it
	}
	for _, name := range names {
		if name == t.ref.Name {
			t.add(CheckOK, "resource", "", "%s exists", t.ref.Key())
			return
		}
	}
	if t.b.Node.GetMetadata().GetFields()["dataplane.resource"] != nil {
		return // the agent checks it when the Envoy connects
	}
	var near []string
	if name := strict.Nearest(t.ref.Name, names); name != "" {
		near = append(near, node.Ref{Mesh: t.ref.Mesh, Name: name}.NodeID())
	}
	t.missing(near)
}
