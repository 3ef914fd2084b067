package draft_test

import (
	"slices"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

func anyOf(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

func resourceOf(t testing.TB, name string, m proto.Message) *draft.Resource {
	t.Helper()
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return draft.NewResource(draft.Rank("type.googleapis.com/"+string(m.ProtoReflect().Descriptor().FullName())), name,
		body)
}

// listenerOf returns a listener with an HTTP chain, a TCP default chain, and loggers that write to
// the files.
func listenerOf(t *testing.T, rule rbacv3.RBAC_Action, files ...string) *draft.Resource {
	t.Helper()
	var logs []*accesslogv3.AccessLog
	for _, f := range files {
		logs = append(logs, &accesslogv3.AccessLog{Name: f, ConfigType: &accesslogv3.AccessLog_TypedConfig{
			TypedConfig: anyOf(t, &filev3.FileAccessLog{Path: f})}})
	}
	filter := func(m proto.Message) []*listenerv3.Filter {
		return []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(t, m)}}}
	}
	guard := &httprbacv3.RBAC{Rules: &rbacv3.RBAC{Action: rule}}
	requests := filter(&hcmv3.HttpConnectionManager{
		StatPrefix: "requests", AccessLog: logs,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r", ConfigSource: draft.ADS}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "guard",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, guard)}}},
	})
	return resourceOf(t, "l", &listenerv3.Listener{
		Name: "l", AccessLog: logs, StatPrefix: "all",
		FilterChains:       []*listenerv3.FilterChain{{Name: "requests", Filters: requests}},
		DefaultFilterChain: &listenerv3.FilterChain{Filters: filter(&tcpv3.TcpProxy{StatPrefix: "tcp", AccessLog: logs})},
	})
}

// TestLoggersAreLeftOut checks that a listener from which a logger is removed equals one that never
// had it.
func TestLoggersAreLeftOut(t *testing.T) {
	s := &draft.Sealed{Pipes: []draft.Pipe{{Path: "/gone"}, {Path: "/stays"}}}
	s.Resources[draft.RankListener] = []*draft.Resource{listenerOf(t, rbacv3.RBAC_ALLOW, "/gone", "/stays")}
	got := s.Without(func(id string) bool { return id == "/gone" }, never)
	want := listenerOf(t, rbacv3.RBAC_ALLOW, "/stays")
	if list := got.Resources[draft.RankListener]; len(list) != 1 || list[0].Version != want.Version {
		t.Errorf("the listener without a logger is %q, want %q", list[0].Body(), want.Body())
	}
	if len(got.Pipes) != 1 || got.Pipes[0].Path != "/stays" {
		t.Errorf("pipes: %v", got.Pipes)
	}
	if s.Without(never, never) != s {
		t.Error("another config although nothing is left out")
	}
}

// TestLoggersWriteTheirFiles checks that the loggers of a FIFO that is not available write to its
// file, if the Envoy may write it.
func TestLoggersWriteTheirFiles(t *testing.T) {
	s := &draft.Sealed{Pipes: []draft.Pipe{{Path: "/fifo", Kind: draft.PipeFile, Target: "/file", Fallback: true},
		{Path: "/other", Kind: draft.PipeFile, Target: "/elsewhere"}}}
	s.Resources[draft.RankListener] = []*draft.Resource{listenerOf(t, rbacv3.RBAC_ALLOW, "/fifo", "/other", "/stays")}
	always := func(string) bool { return true }
	got := s.Without(always, always)
	body := string(got.Resources[draft.RankListener][0].Body())
	logs := func(path string) int { // loggers, whose name is the path here as well
		return strings.Count(body, "FileAccessLog\x12"+string(rune(len(path)+2))+"\n"+string(rune(len(path)))+path)
	}
	if logs("/fifo") != 0 || logs("/file") != 3 || logs("/other") != 0 || logs("/stays") != 3 || len(got.Pipes) > 0 {
		t.Errorf("pipes %v, and the listener is %q", got.Pipes, body)
	}
}

func never(string) bool { return false }

// TestGuard checks that routes carry the current RBAC rules while connections still use an older
// version of the listener.
func TestGuard(t *testing.T) {
	allow, deny := listenerOf(t, rbacv3.RBAC_ALLOW), listenerOf(t, rbacv3.RBAC_DENY)
	routes := resourceOf(t, "r", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v"}}})
	for name, older := range map[string]*draft.Resource{"another form": allow, "an unknown form": nil} {
		var m routev3.RouteConfiguration
		var over httprbacv3.RBACPerRoute
		if err := proto.Unmarshal(draft.Guard(routes, deny, older).Body(), &m); err != nil {
			t.Fatal(err)
		}
		if err := m.TypedPerFilterConfig["guard"].UnmarshalTo(&over); err != nil {
			t.Fatal(err)
		}
		if over.Rbac.Rules.Action != rbacv3.RBAC_DENY || len(m.VirtualHosts) != 1 || len(m.TypedPerFilterConfig) != 1 {
			t.Errorf("%s: %v", name, &m)
		}
	}
	patched := resourceOf(t, "r", &routev3.RouteConfiguration{Name: "r",
		TypedPerFilterConfig: map[string]*anypb.Any{"guard": anyOf(t, &httprbacv3.RBACPerRoute{})}})
	other := resourceOf(t, "other", &routev3.RouteConfiguration{Name: "other"})
	for _, r := range []*draft.Resource{patched, other} {
		if draft.Guard(r, deny, allow) != r {
			t.Errorf("the routes %s are changed", r.Name)
		}
	}
	if draft.Guard(routes, deny, deny) != routes {
		t.Error("routes are changed although both forms say the same")
	}
	if !slices.Equal(draft.Guard(routes, deny, nil).Body()[:routes.Len()], routes.Body()) {
		t.Error("all else of the routes must stay")
	}
}
