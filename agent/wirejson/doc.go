// Package wirejson renders protobuf messages as JSON from their wire form, without building the messages.
//
// The output is the compact form of what google.golang.org/protobuf/encoding/protojson writes: names in lowerCamelCase,
// fields in the order of their declaration, 64-bit numbers as text, enums by name, google.protobuf.Any expanded, and
// the well-known types in their own forms. Fields may come in any order, and what the wire form merges is merged: a
// message that comes in parts, a list that is packed in part, the last of several values. It promises:
//
//   - the same bytes give the same output;
//   - bytes that proto.Unmarshal refuses are an error, wherever they stand, also where a later value replaces them;
//   - time and memory are linear in the input and the output, but for sorting, and nesting is bounded;
//   - what is declared secret never gets into the output.
//
// Three things differ from protojson. Messages that lie more than 100 deep, packed ones included, are an error: Envoy
// does not load them either. Required fields of proto2 are not asked for, and MessageSets are not known; Envoy's API
// has neither.
package wirejson
