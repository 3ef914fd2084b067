package danger

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	udpa "github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Reasons of dangers. A %s is replaced by the value, unless it may be a secret.
const (
	reasonFile    = "names the file %s"
	reasonEnv     = "reads the environment variable %s"
	reasonSocket  = "names a socket or pipe"
	reasonLua     = "contains Lua code"
	reasonWasm    = "contains Wasm code"
	reasonModule  = "loads a module or library"
	reasonAdmin   = "uses Envoy's admin interface"
	reasonLocal   = "connects to the local address %s, which may be an admin interface"
	reasonServer  = "takes config from another server"
	reasonGrpc    = "uses Google gRPC, which reads files, sockets, and credentials"
	reasonKey     = "contains a key or a password"
	reasonUntyped = "contains config without a known type"
	reasonCopy    = "copies a value whose content is unknown"
	reasonFormat  = "has a format that reads files or environment variables"
)

// segments maps parts of the names of message types to the reason why all such messages are
// dangerous.
var segments = map[string]string{
	"lua": reasonLua, "wasm": reasonWasm, "golang": reasonModule, "dynamic_modules": reasonModule,
	"file_server": reasonFile, "async_files": reasonFile, "sockmap": reasonSocket,
	"bootstrap": reasonAdmin, "admin": reasonAdmin,
}

// messages maps the names of message types to the reason why they are dangerous.
var messages = map[protoreflect.FullName]string{
	"envoy.config.core.v3.Pipe":                                   reasonSocket,
	"envoy.config.core.v3.WatchedDirectory":                       reasonFile,
	"envoy.config.core.v3.PathConfigSource":                       reasonFile,
	"envoy.config.core.v3.ApiConfigSource":                        reasonServer,
	"envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials": reasonGrpc,
	"envoy.config.core.v3.GrpcService.GoogleGrpc":                 reasonGrpc,
	"envoy.config.tap.v3.FilePerTapSink":                          reasonFile,
	"envoy.config.tap.v3.BufferedAdminSink":                       reasonAdmin,
	"envoy.config.tap.v3.StreamingAdminSink":                      reasonAdmin,
	"envoy.config.trace.v3.DynamicOtConfig":                       reasonModule,
	"envoy.extensions.common.tap.v3.AdminConfig":                  reasonAdmin,
	"envoy.extensions.transport_sockets.tls.v3.TlsKeyLog":         reasonFile,
	// The types that convert to any message.
	"xds.type.v3.TypedStruct":  reasonUntyped,
	"udpa.type.v1.TypedStruct": reasonUntyped,
}

// sinks maps the full names of dangerous fields to the reason.
var sinks = map[protoreflect.FullName]string{
	"envoy.config.core.v3.ConfigSource.path":                        reasonFile,
	"envoy.config.core.v3.DataSource.environment_variable":          reasonEnv,
	"envoy.config.core.v3.DataSource.filename":                      reasonFile,
	"envoy.config.core.v3.HealthCheck.event_log_path":               reasonFile,
	"envoy.config.core.v3.SocketAddress.network_namespace_filepath": reasonFile,
	"envoy.config.trace.v3.DynamicOtConfig.library":                 reasonModule,
	"envoy.config.trace.v3.LightstepConfig.access_token_file":       reasonFile,

	"envoy.extensions.access_loggers.file.v3.FileAccessLog.path":                                              reasonFile,
	"envoy.extensions.filters.http.grpc_json_reverse_transcoder.v3.GrpcJsonReverseTranscoder.descriptor_path": reasonFile,
	"envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder.proto_descriptor":               reasonFile,
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.anon_db_path":                                  reasonFile,
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.asn_db_path":                                   reasonFile,
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.city_db_path":                                  reasonFile,
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.country_db_path":                               reasonFile,
	"envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig.isp_db_path":                                   reasonFile,
	"envoy.extensions.grpc_service.call_credentials.sts_service.v3.StsServiceCredentials.actor_token_path":    reasonFile,
	"envoy.extensions.grpc_service.call_credentials.sts_service.v3.StsServiceCredentials.subject_token_path":  reasonFile,
	"envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink.event_log_path":               reasonFile,
	"envoy.extensions.http.cache.file_system_http_cache.v3.FileSystemHttpCacheConfig.cache_path":              reasonFile,
	"envoy.extensions.http.cache_v2.file_system_http_cache.v3.FileSystemHttpCacheV2Config.cache_path":         reasonFile,
	"envoy.extensions.key_value.file_based.v3.FileBasedKeyValueStoreConfig.filename":                          reasonFile,

	// Fields of dangerous messages that a patch can reach in a config that others have added.
	"envoy.extensions.filters.http.lua.v3.Lua.default_source_code":                                 reasonLua,
	"envoy.extensions.filters.http.lua.v3.Lua.inline_code":                                         reasonLua,
	"envoy.extensions.filters.http.lua.v3.Lua.package_cpaths":                                      reasonLua,
	"envoy.extensions.filters.http.lua.v3.Lua.package_paths":                                       reasonLua,
	"envoy.extensions.filters.http.lua.v3.Lua.source_codes":                                        reasonLua,
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.package_cpaths":                              reasonLua,
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.package_paths":                               reasonLua,
	"envoy.extensions.filters.http.lua.v3.LuaPerRoute.source_code":                                 reasonLua,
	"envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.source_code":                      reasonLua,
	"envoy.extensions.string_matcher.lua.v3.Lua.source_code":                                       reasonLua,
	"envoy.extensions.filters.http.file_server.v3.FileServerConfig.PathMapping.file_path_prefix":   reasonFile,
	"envoy.extensions.filters.http.file_server.v3.FileServerConfig.DirectoryBehavior.default_file": reasonFile,
}

// Messages and fields that other rules need.
const (
	nameAny      = "google.protobuf.Any"
	nameEndpoint = "envoy.config.endpoint.v3.Endpoint"
	nameHost     = "envoy.config.core.v3.SocketAddress.address"
	googleTypes  = "google.protobuf."
)

// dangerousType returns why a message type is dangerous, or "". The type need not be known.
func dangerousType(name protoreflect.FullName) string {
	if reason := messages[name]; reason != "" {
		return reason
	}
	if parent := name.Parent(); messages[parent] != "" {
		return messages[parent]
	}
	for segment := range strings.SplitSeq(string(name), ".") {
		if reason := segments[segment]; reason != "" {
			return reason
		}
	}
	return ""
}

// sinkOf returns the reason why a field is dangerous, or "".
func sinkOf(fd protoreflect.FieldDescriptor) string {
	if reason := sinks[fd.FullName()]; reason != "" {
		return reason
	}
	if m := valueType(fd); m != nil {
		return dangerousType(m.FullName())
	}
	return ""
}

// valueType returns the message type of a field's values, or nil.
func valueType(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

// sensitive reports whether a field holds a key or a password: those that Envoy marks, except the
// context of ext_authz, and texts with the name of a credential, except the keys of subsets.
func sensitive(fd protoreflect.FieldDescriptor) bool {
	if fd.Name() == "context_extensions" {
		return false
	}
	marked, _ := proto.GetExtension(fd.Options(), udpa.E_Sensitive).(bool)
	return marked || fd.Kind() == protoreflect.StringKind && fd.Name() != "keys" && secret.Field(string(fd.Name()))
}

// sourceFields are the fields below a sensitive field that hold no secret themselves.
var sourceFields = []string{"@type", "name", "provider_name", "resource_api_version", "client", "fallback"}

// formats are the operators of format strings that read files or the environment.
var formats = [...]string{"%FILE_CONTENT(", "%ENVIRONMENT("}

// textDanger returns why a string is dangerous in any field, or "".
func textDanger(s string) string {
	if secret.HoldsKey(s) {
		return reasonKey
	}
	for _, f := range formats {
		if strings.Contains(s, f) {
			return reasonFormat
		}
	}
	if name := s[strings.LastIndexByte(s, '/')+1:]; versioned.MatchString(name) {
		return fill(dangerousType(protoreflect.FullName(name)), "")
	}
	return ""
}

// versioned matches the names of message types, and not those of extensions.
var versioned = regexp.MustCompile(`^[\w.]+\.v[0-9]\w*\.[\w.]+$`)

// localHost reports whether an address or a name leads to this host, also in the forms of
// inet_aton(3).
func localHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		return a.IsLoopback() || a.IsUnspecified()
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasPrefix(host, "localhost.") ||
		strings.HasPrefix(host, "ip6-l") {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && last[0] >= '0' && last[0] <= '9' && strings.Trim(host, "0123456789abcdefx.") == ""
}

// fill returns a reason with its value.
func fill(reason, value string) string {
	if !strings.Contains(reason, "%s") {
		return reason
	}
	if value == "" {
		return strings.TrimSuffix(strings.Replace(reason, " %s", "", 1), " ")
	}
	return fmt.Sprintf(reason, fmt.Sprintf("%q", clip.Value(value)))
}

// byName sorts fields, so that results do not depend on the order of the type registry.
func byName(fds []protoreflect.FieldDescriptor) []protoreflect.FieldDescriptor {
	slices.SortFunc(fds, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	return fds
}
