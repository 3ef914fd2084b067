package otlp

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// Names of the OTLP log service. The generated code would require a gateway to HTTP, and messages
// are forwarded as bytes, so names and field numbers are written here.
const (
	logsService  = "opentelemetry.proto.collector.logs.v1.LogsService"
	exportMethod = "Export"
)

// rawCodec treats messages as bytes.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name returns the name of the protobuf codec.
func (rawCodec) Name() string { return "proto" }

// Marshal encodes a *[]byte.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a %T is not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal decodes into a *[]byte.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a %T is not bytes", v)
	}
	*b = data.Materialize()
	return nil
}

var errNotOTLP = errors.New("the request is not an ExportLogsServiceRequest")

// countRecords returns the number of log records in an ExportLogsServiceRequest: resource_logs = 1
// {scope_logs = 2 {log_records = 2}}. It ignores all other fields.
func countRecords(request []byte) (records uint64, err error) {
	err = eachMessage(request, 1, func(resourceLogs []byte) error {
		return eachMessage(resourceLogs, 2, func(scopeLogs []byte) error {
			return eachMessage(scopeLogs, 2, func([]byte) error {
				records++
				return nil
			})
		})
	})
	return records, err
}

// eachMessage calls fn with each submessage in a field of a message.
func eachMessage(b []byte, field protowire.Number, fn func([]byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errNotOTLP
		}
		b = b[n:]
		if number == field && kind == protowire.BytesType {
			inner, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errNotOTLP
			}
			if err := fn(inner); err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return errNotOTLP
		}
		b = b[n:]
	}
	return nil
}

// appendAnswer appends an ExportLogsServiceResponse: partial_success = 1 {rejected_log_records = 1,
// error_message = 2}.
func appendAnswer(b []byte, rejected uint64, message string) []byte {
	var partial []byte
	partial = protowire.AppendVarint(protowire.AppendTag(partial, 1, protowire.VarintType), rejected)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), message)
	return protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), partial)
}

// parseAnswer decodes an ExportLogsServiceResponse. An invalid response rejects nothing, because
// the call has succeeded.
func parseAnswer(b []byte) (rejected uint64, message string) {
	err := eachMessage(b, 1, func(partial []byte) error {
		for len(partial) > 0 {
			number, kind, n := protowire.ConsumeTag(partial)
			if n < 0 {
				return errNotOTLP
			}
			partial = partial[n:]
			if n = protowire.ConsumeFieldValue(number, kind, partial); n < 0 {
				return errNotOTLP
			}
			switch {
			case number == 1 && kind == protowire.VarintType:
				rejected, _ = protowire.ConsumeVarint(partial)
			case number == 2 && kind == protowire.BytesType:
				message, _ = protowire.ConsumeString(partial)
			}
			partial = partial[n:]
		}
		return nil
	})
	if err != nil || rejected > spool.MaxNumber { // a negative number decodes as a large one
		return 0, ""
	}
	return rejected, message
}
