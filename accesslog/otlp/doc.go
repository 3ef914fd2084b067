// Package otlp takes log records by OTLP over gRPC and exports them to OpenTelemetry collectors,
// each route in order and with a spool of its own.
package otlp
