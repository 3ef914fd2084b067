// Package otlp receives log records through OTLP over gRPC and exports them to OpenTelemetry
// collectors. Each route keeps its order and has a separate spool.
package otlp
