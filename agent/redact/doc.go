// Package redact renders protobuf messages as JSON, with the values of secret fields replaced.
//
// The output is what google.golang.org/protobuf/encoding/protojson writes, without white space. The same bytes give the
// same output. Bytes that proto.Unmarshal refuses are an error, and so are messages that lie more than 100 deep, packed
// ones included: Envoy does not load them either.
package redact
