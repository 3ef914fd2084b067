package accesslog

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// pack returns the config of Envoy's logger. Envoy before 1.37 requires the collector in
// common_config, which newer versions deprecate.
func (r *record) pack(v *values) (*anypb.Any, error) {
	collector := &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: r.cluster, Authority: r.route},
	}}
	var policy *corev3.RetryPolicy
	if r.route != "" {
		policy = retryUnanswered(collector)
	}
	config := &otelv3.OpenTelemetryAccessLogConfig{Body: r.body.message(v), Attributes: messages(r.attributes, v),
		ResourceAttributes: resourceAttributes(v)}
	if r.newer {
		collector.RetryPolicy = policy
		config.GrpcService, config.LogName = collector, logName
	} else {
		//lint:ignore SA1019 supported by all versions
		config.CommonConfig = &grpcv3.CommonGrpcAccessLogConfig{LogName: logName, GrpcService: collector,
			TransportApiVersion: corev3.ApiVersion_V3, GrpcStreamRetryPolicy: policy}
	}
	return draft.Extension{Name: nameOTel, Message: config}.Pack()
}

// Retries of requests to the agent, about 7 minutes in total.
const (
	retries      = 12
	firstBackoff = 100 * time.Millisecond
	// tryTimeout limits the backoff and each try. A try that ends while it waits in the socket of a
	// stopped agent would arrive twice.
	tryTimeout = 10 * time.Minute
	// maxWaiting is Envoy's default limit of requests. By default, only 3 of them are retries.
	maxWaiting = 1024
)

// retryUnanswered makes Envoy send records again when their request ends without an answer of the
// agent, for example because the agent was killed, or with UNAVAILABLE. The retry policy of the
// logger covers only failed connects, and makes Envoy buffer requests. Envoy's router reads the
// rest from headers and removes them.
func retryUnanswered(collector *corev3.GrpcService) *corev3.RetryPolicy {
	collector.InitialMetadata = []*corev3.HeaderValue{
		{Key: "x-envoy-retry-on", Value: "reset"}, {Key: "x-envoy-retry-grpc-on", Value: "unavailable"}}
	return &corev3.RetryPolicy{NumRetries: wrapperspb.UInt32(retries), RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: durationpb.New(firstBackoff), MaxInterval: durationpb.New(tryTimeout)}}
}
