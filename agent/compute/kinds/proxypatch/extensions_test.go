package proxypatch

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestImpliedExtensions checks that packages that are imported only indirectly are registered.
func TestImpliedExtensions(t *testing.T) {
	for _, name := range []protoreflect.FullName{
		"envoy.config.trace.v3.DatadogRemoteConfig",
		"envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
		"envoy.extensions.clusters.dns.v3.DnsCluster",
		"envoy.extensions.common.async_files.v3.AsyncFileManagerConfig",
		"envoy.extensions.common.aws.v3.AwsCredentialProvider",
		"envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheCircuitBreakers",
		"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
		"envoy.extensions.common.tap.v3.CommonExtensionConfig",
		"envoy.extensions.dynamic_modules.v3.DynamicModuleConfig",
		"envoy.extensions.filters.common.fault.v3.FaultDelay",
		"envoy.extensions.filters.common.jwks.v3.RemoteJwks",
		"envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue",
		"envoy.extensions.filters.http.compressor.v3.Compressor",
		"envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
		"envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
		"envoy.extensions.geoip_providers.common.v3.CommonGeoipProviderConfig",
		"envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig",
		"envoy.extensions.outlier_detection_monitors.common.v3.HttpErrors",
		"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
		"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"envoy.extensions.wasm.v3.ReloadConfig",
	} {
		if _, err := protoregistry.GlobalTypes.FindMessageByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := protoregistry.GlobalTypes.FindEnumByName(
		"envoy.extensions.clusters.common.dns.v3.DnsLookupFamily"); err != nil {
		t.Error(err)
	}
}
