package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	admissionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	apikeyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	basicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/basic_auth/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	transcoderv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_json_transcoder/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	iptagv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ip_tagging/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	netlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// These rules are what Envoy 1.36.2 and 1.40.0 report about the configs of HTTP filters.

// minFill is the shortest fill interval of a token bucket.
const minFill = 50 * time.Millisecond

func checkBucket(s *subject, b *typev3.TokenBucket, at string) {
	if b != nil && b.GetFillInterval() != nil && b.GetFillInterval().AsDuration() < minFill {
		s.report(205, finding.Reject, at+"/fillInterval", "fill_interval %v is below %v",
			b.GetFillInterval().AsDuration(), minFill)
	}
}

// checkTokens checks a token bucket.
func checkTokens(s *subject, m *typev3.TokenBucket) {
	if m.GetMaxTokens() == 0 {
		s.out.uses.add(versioned["TokenBucket.max_tokens of 0"])
	}
}

func checkNetworkLimit(s *subject, m *netlimitv3.LocalRateLimit) {
	checkBucket(s, m.GetTokenBucket(), "tokenBucket")
}

func checkHTTPLimit(s *subject, m *httplimitv3.LocalRateLimit) {
	checkBucket(s, m.GetTokenBucket(), "tokenBucket")
	seen := map[string]int{}
	for i, d := range m.GetDescriptors() {
		at := finding.Item("descriptors", i)
		checkBucket(s, d.GetTokenBucket(), at+"/tokenBucket")
		var key strings.Builder
		wildcard := false
		for _, e := range d.GetEntries() {
			fmt.Fprintf(&key, "%q=%q ", e.GetKey(), e.GetValue())
			wildcard = wildcard || e.GetValue() == ""
		}
		if first, twice := seen[key.String()]; twice && !wildcard {
			s.reportWith([]string{finding.Item("descriptors", first)}, 205, finding.Reject, at,
				"the descriptor is listed twice: remove one")
		}
		seen[key.String()] = i
	}
}

func checkLua(s *subject, m *luav3.Lua) {
	if m.GetInlineCode() != "" && m.GetDefaultSourceCode() != nil {
		s.report(205, finding.Reject,
			"inlineCode", "inline_code and default_source_code cannot be combined: keep default_source_code")
	}
	checkLuaCode(s, m.GetInlineCode(), "inlineCode")
	if code, ok := inline(m.GetDefaultSourceCode()); ok {
		checkLuaCode(s, string(code), "defaultSourceCode")
	}
	for name, source := range m.GetSourceCodes() {
		if code, ok := inline(source); ok {
			checkLuaCode(s, string(code), "sourceCodes/"+finding.PointerKey(name))
		}
	}
}

func checkLuaCode(s *subject, code, at string) {
	if why := syntax.LuaFault(code); why != "" {
		s.report(205, finding.Reject, at, "Lua cannot load the script: %s", why)
	}
}

func checkJWT(s *subject, m *jwtv3.JwtAuthentication) {
	known := func(r *jwtv3.JwtRequirement, at string) { checkJWTRequirement(s, m, r, at) }
	for i, r := range m.GetRules() {
		at := finding.Item("rules", i)
		known(r.GetRequires(), at+"/requires")
		if n := r.GetRequirementName(); n != "" && m.GetRequirementMap()[n] == nil {
			s.report(205, finding.Reject, at+"/requirementName", "requirement_map has no %q", clip.Value(n))
		}
	}
	for name, r := range m.GetRequirementMap() {
		known(r, "requirementMap/"+finding.PointerKey(name))
	}
	for name, p := range m.GetProviders() {
		if uri := p.GetRemoteJwks().GetHttpUri().GetUri(); uri != "" && !strings.HasPrefix(uri, "https://") &&
			!strings.HasPrefix(uri, "http://") {
			s.report(205, finding.Reject, "providers/"+finding.PointerKey(name)+"/remoteJwks/httpUri/uri",
				"%q is no URI: it begins with https:// or http://", clip.Value(uri))
		}
		at := "providers/" + finding.PointerKey(name) + "/localJwks"
		data, given := inline(p.GetLocalJwks())
		if !given {
			continue
		}
		var set struct{ Keys []json.RawMessage }
		if err := json.Unmarshal(data, &set); err == nil && len(set.Keys) > 0 {
			continue
		}
		if text := string(data); strings.Contains(text, "-----BEGIN") {
			continue // a PEM key
		}
		s.report(205, finding.Reject, at, "it is not a JSON Web Key Set with a key")
	}
}

// checkJWTRequirement checks that the providers of a requirement exist.
func checkJWTRequirement(s *subject, m *jwtv3.JwtAuthentication, r *jwtv3.JwtRequirement, at string) {
	provider := func(name, field string) {
		if m.GetProviders()[name] == nil {
			s.report(205, finding.Reject, at+field, "there is no provider %q", clip.Value(name))
		}
	}
	switch k := r.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		provider(k.ProviderName, "/providerName")
	case *jwtv3.JwtRequirement_ProviderAndAudiences:
		provider(k.ProviderAndAudiences.GetProviderName(), "/providerAndAudiences/providerName")
	case *jwtv3.JwtRequirement_RequiresAny:
		for i, in := range k.RequiresAny.GetRequirements() {
			checkJWTRequirement(s, m, in, finding.Item(at+"/requiresAny/requirements", i))
		}
	case *jwtv3.JwtRequirement_RequiresAll:
		for i, in := range k.RequiresAll.GetRequirements() {
			checkJWTRequirement(s, m, in, finding.Item(at+"/requiresAll/requirements", i))
		}
	}
}

// checkWasm checks a module. Stock Envoys have V8, and the null runtime for compiled-in modules.
func checkWasm(s *subject, m *wasmv3.PluginConfig) {
	vm := m.GetVmConfig()
	if m.GetFailOpen() || m.GetFailurePolicy() == wasmv3.FailurePolicy_FAIL_OPEN {
		return
	}
	code, given := inline(vm.GetCode().GetLocal())
	switch runtime := vm.GetRuntime(); {
	case runtime == "envoy.wasm.runtime.null":
		s.report(205, finding.Reject, "vmConfig/runtime",
			"stock Envoys have no compiled-in code for the null runtime: use envoy.wasm.runtime.v8")
	case runtime != "" && !strings.HasPrefix(runtime, "envoy.wasm.runtime."):
		s.report(205, finding.Reject, "vmConfig/runtime", "there is no Wasm runtime %q: use envoy.wasm.runtime.v8",
			clip.Value(runtime))
	case given && !strings.HasPrefix(string(code), "\x00asm\x01\x00\x00\x00"):
		s.report(205, finding.Reject, "vmConfig/code/local", "it is not a Wasm module")
	case given && len(code) == 8:
		s.report(205, finding.Reject, "vmConfig/code/local", "the Wasm module is empty")
	}
}

func checkHealthFilter(s *subject, m *healthv3.HealthCheck) {
	if m.GetCacheTime() != nil && !m.GetPassThroughMode().GetValue() {
		s.report(205, finding.Reject, "cacheTime", "cache_time requires pass_through_mode: remove it")
	}
}

func checkHeaderToMetadata(s *subject, m *headerv3.Config) {
	check := func(rules []*headerv3.Config_Rule, field string) {
		for i, r := range rules {
			at := finding.Item(field, i)
			switch {
			case (r.GetHeader() == "") == (r.GetCookie() == ""):
				s.report(205, finding.Reject, at, "set either header or cookie")
			case r.GetOnHeaderPresent() == nil && r.GetOnHeaderMissing() == nil:
				s.report(205, finding.Reject, at, "set on_header_present or on_header_missing")
			case r.GetOnHeaderMissing() != nil && r.GetOnHeaderMissing().GetValue() == "":
				s.report(205, finding.Reject, at+"/onHeaderMissing/value", "the value for a missing header must not be empty")
			}
		}
	}
	check(m.GetRequestRules(), "requestRules")
	check(m.GetResponseRules(), "responseRules")
}

func checkBasicAuth(s *subject, m *basicv3.BasicAuth) {
	data, given := inline(m.GetUsers())
	if !given {
		return
	}
	if len(data) == 0 {
		s.report(205, finding.Reject, "users", "it is empty: add at least one name with the hash of its password")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, hash, found := strings.Cut(line, ":")
		sha, isSHA := strings.CutPrefix(hash, "{SHA}")
		if !found || name == "" || !isSHA || len(sha) != 28 || seen[name] {
			s.report(205, finding.Reject,
				"users", "each line must be a different name with the hash of a password: name:{SHA} and 28 characters")
			return
		}
		seen[name] = true
	}
}

func checkAPIKeys(s *subject, m *apikeyv3.ApiKeyAuth) {
	seen := map[string]int{}
	for i, c := range m.GetCredentials() {
		if first, twice := seen[c.GetKey()]; twice {
			s.reportWith([]string{finding.Item("credentials", first)}, 205, finding.Reject, finding.Item("credentials", i),
				"the key is listed twice: each client needs a different key")
		}
		seen[c.GetKey()] = i
	}
	for i, k := range m.GetKeySources() {
		if k.GetHeader() == "" && k.GetQuery() == "" && k.GetCookie() == "" {
			s.report(205, finding.Reject, finding.Item("keySources", i), "give header, query or cookie")
		}
	}
}

func checkTranscoder(s *subject, m *transcoderv3.GrpcJsonTranscoder) {
	var files descriptorpb.FileDescriptorSet
	data := m.GetProtoDescriptorBin()
	if m.GetDescriptorSet() == nil {
		return
	}
	if m.GetProtoDescriptor() != "" {
		return // a file on Envoy's host
	}
	if err := proto.Unmarshal(data, &files); err != nil {
		s.report(205, finding.Reject, "protoDescriptorBin", "it cannot be read as a FileDescriptorSet")
		return
	}
	known := map[string]bool{}
	for _, f := range files.GetFile() {
		for _, v := range f.GetService() {
			known[strings.TrimPrefix(f.GetPackage()+"."+v.GetName(), ".")] = true
		}
	}
	for i, name := range m.GetServices() {
		if !known[name] {
			s.report(205, finding.Reject, finding.Item("services", i), "the descriptors have no service %q", clip.Value(name))
		}
	}
}

func checkIPTags(s *subject, m *iptagv3.IPTagging) {
	for i, t := range m.GetIpTags() {
		checkRanges(s, 205, t.GetIpList(), finding.Item("ipTags", i, "ipList"))
	}
}

// checkHTTP2 checks HTTP/2 options.
func checkHTTP2(s *subject, m *corev3.Http2ProtocolOptions) {
	for i, p := range m.GetCustomSettingsParameters() {
		at := finding.Item("customSettingsParameters", i)
		switch id, value := p.GetIdentifier().GetValue(), p.GetValue().GetValue(); {
		case id == 8:
			s.report(206, finding.Reject, at, "setting 8 has a separate field: set allow_connect")
		case id == 2 && value == 1:
			s.report(206, finding.Reject, at, "Envoy does not push: remove setting 2")
		}
	}
}

// checkCommonHTTP checks options that apply to both downstream and upstream connections.
func checkCommonHTTP(s *subject, m *corev3.HttpProtocolOptions) {
	if m.GetMaxResponseHeadersKb() != nil && s.inside(hcmPackage+"HttpConnectionManager") {
		s.report(206, finding.Reject,
			"maxResponseHeadersKb", "it is for clusters: remove it from the HTTP connection manager")
	}
}

func checkAdmission(s *subject, m *admissionv3.AdmissionControl) {
	for i, r := range m.GetSuccessCriteria().GetHttpCriteria().GetHttpSuccessStatus() {
		if r.GetStart() < 100 || r.GetEnd() > 600 || r.GetStart() > r.GetEnd() {
			s.report(205, finding.Reject, finding.Item("successCriteria/httpCriteria/httpSuccessStatus", i),
				"[%d, %d) is not a range of statuses: use a range within [100, 600)", r.GetStart(), r.GetEnd())
		}
	}
}

// checkAuthzService checks the server of HTTP authorization.
func checkAuthzService(s *subject, m *authzv3.HttpService) {
	if p := m.GetPathPrefix(); p != "" && p[0] != '/' {
		s.report(205, finding.Reject, "pathPrefix", "%q is a path prefix, so it must begin with /", clip.Value(p))
	}
}
