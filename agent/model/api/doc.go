// Package api declares the documents of the HTTP API, which -o json also prints. Releases add
// fields to them, and never rename or remove any.
//
// The package only has types, their constants, and their text forms, so that every package may
// return documents without depending on a server or on net/http. Explanations are in package
// explain, next to the trace types that they contain. Lists are never null unless the field says
// so.
package api
