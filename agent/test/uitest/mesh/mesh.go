// Package mesh makes large meshes for tests of the page and for measurements: a mesh with many
// services of several teams, of which some dataplanes belong to this node, and clients that connect
// as their Envoys.
//
// The same options give the same bytes.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Options describe a mesh.
type Options struct {
	Services int  // number of services, from 1
	Proxies  int  // number of dataplanes of this node that [Connect] connects, at most Services
	Calls    int  // outbounds of each dataplane; 0 means 8
	MTLS     bool // the mesh has mTLS, so that permissions are enforced
}

// teams are the namespaces of the services.
var teams = []string{"accounts", "billing", "catalog", "delivery", "identity", "payments", "search", "support"}

// maxFile is a size below the limit of the agent for one file.
const maxFile = 4 << 20

// Service returns the name of service i.
func Service(i int) string { return fmt.Sprintf("%s-%04d", teams[i%len(teams)], i) }

// Dataplane returns the name of the first dataplane of service i.
func Dataplane(i int) string { return Service(i) + "-a" }

// Files returns the resources of the mesh "default" as texts that fit into resource files.
func Files(o Options) []string {
	if o.Calls == 0 {
		o.Calls = 8
	}
	var files []string
	var b strings.Builder
	add := func(text string) {
		if b.Len()+len(text) > maxFile {
			files = append(files, b.String())
			b.Reset()
		}
		b.WriteString("---\n" + text + "\n")
	}
	mtls := ""
	if o.MTLS {
		mtls = `,"mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"}]}`
	}
	add(`{"type":"Mesh","name":"default"` + mtls + `}`)
	policies(o, add)
	for i := range o.Services {
		add(dataplane(o, i, "a", fmt.Sprintf("127.%d.%d.%d", 1+i/62500, i/250%250, 1+i%250)))
		if i%2 == 0 { // an instance on another node
			add(dataplane(o, i, "b", fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, 1+i%250)))
		}
	}
	return append(files, b.String())
}

// Protocol returns the protocol of service i.
func Protocol(i int) string { return []string{"http", "http", "grpc", "tcp"}[i/len(teams)%4] }

func dataplane(o Options, i int, instance, address string) string {
	tags := fmt.Sprintf(`"kuma.io/service":%q,"kuma.io/protocol":%q,"k8s.kuma.io/namespace":%q,"team":%q,"version":"v%d"`,
		Service(i), Protocol(i), teams[i%len(teams)], teams[i%len(teams)], 1+i%3)
	var out []string
	for n, to := range callees(o, i) {
		out = append(out, fmt.Sprintf(`{"address":%q,"port":%d,"tags":{"kuma.io/service":%q}}`, address, 20000+n, Service(to)))
	}
	return fmt.Sprintf(`{"type":"Dataplane","mesh":"default","name":"%s-%s","networking":{"address":%q,`+
		`"inbound":[{"port":8080,"servicePort":18080,"tags":{%s}}],"outbound":[%s]}}`,
		Service(i), instance, address, tags, strings.Join(out, ","))
}

// callees returns the services that service i has outbounds to: most are of its team, and some are
// popular.
func callees(o Options, i int) []int {
	var out []int
	has := map[int]bool{i: true}
	for n := 0; len(out) < min(o.Calls, o.Services-1); n++ {
		to := (i + len(teams)*(1+n*n)) % o.Services // a service of the same team
		if n%3 == 0 {
			to = (i*7 + n) % min(o.Services, 24) // a popular service
		}
		if n > 4*o.Calls {
			to = (i + n) % o.Services
		}
		if !has[to] {
			has[to] = true
			out = append(out, to)
		}
	}
	return out
}

// policies adds policies of several kinds: permissions inside of each team and to popular services.
func policies(o Options, add func(string)) {
	for _, team := range teams[:min(len(teams), o.Services)] {
		add(fmt.Sprintf(`{"type":"MeshTrafficPermission","mesh":"default","name":"within-%s","spec":{"targetRef":`+
			`{"kind":"MeshSubset","tags":{"team":%q}},"from":[{"targetRef":{"kind":"MeshSubset","tags":{"team":%q}},`+
			`"default":{"action":"Allow"}}]}}`, team, team, team))
		add(fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"%s-timeouts","spec":{"targetRef":`+
			`{"kind":"MeshSubset","tags":{"team":%q}},"to":[{"targetRef":{"kind":"Mesh"},`+
			`"default":{"idleTimeout":"1h","http":{"requestTimeout":"5s"}}}]}}`, team, team))
	}
	for i := range min(o.Services, 24) {
		action := "Allow"
		if i%6 == 5 {
			action = "Deny"
		}
		add(fmt.Sprintf(`{"type":"MeshTrafficPermission","mesh":"default","name":"to-%s","spec":{"targetRef":`+
			`{"kind":"MeshService","name":%q},"from":[{"targetRef":{"kind":"Mesh"},"default":{"action":%q}}]}}`,
			Service(i), Service(i), action))
	}
	add(`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits","spec":{"targetRef":{"kind":"Mesh"},"to":[{` +
		`"targetRef":{"kind":"Mesh"},"default":{"connectionLimits":{"maxConnections":1024}}}]}}`)
	add(`{"type":"MeshRetry","mesh":"default","name":"retries","spec":{"targetRef":{"kind":"Mesh"},"to":[{` +
		`"targetRef":{"kind":"Mesh"},"default":{"http":{"numRetries":2}}}]}}`)
}

// Write writes the files of the mesh into a directory.
func Write(dir string, o Options) error {
	var errs []error
	for i, text := range Files(o) {
		errs = append(errs, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

// Connect connects the first o.Proxies dataplanes as Envoys do, and acknowledges what they get,
// until ctx ends. It calls served once for each client, after its first listeners or with the error
// of its stream, and returns when all clients have ended.
func Connect(ctx context.Context, socket string, o Options, served func(error)) {
	var clients sync.WaitGroup
	for i := range o.Proxies {
		clients.Go(func() {
			once := sync.OnceFunc(func() { served(nil) })
			if err := session(ctx, socket, "default."+Dataplane(i), once); err != nil && ctx.Err() == nil {
				served(err)
			}
		})
	}
	clients.Wait()
}

// session subscribes like Envoy: to clusters and their endpoints, then to listeners.
func session(ctx context.Context, socket, id string, served func()) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: id, UserAgentName: "envoy"}
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: draft.TypeCluster}); err != nil {
		return err
	}
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeListener}); err != nil {
		return err
	}
	refs := map[string]string{draft.TypeCluster: draft.TypeEndpoint}
	known := map[string]bool{}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			return err
		}
		var names []string
		for _, x := range r.Resources {
			if refs[r.TypeUrl] != "" && !known[x.Name] {
				known[x.Name] = true
				names = append(names, x.Name)
			}
		}
		if len(names) > 0 {
			if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: refs[r.TypeUrl],
				ResourceNamesSubscribe: names}); err != nil {
				return err
			}
		}
		if r.TypeUrl == draft.TypeListener && len(r.Resources) > 0 {
			served()
		}
	}
}
