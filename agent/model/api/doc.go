// Package api declares the documents of the HTTP API, which are also those of `-o json`. Fields are
// added, never renamed or removed.
//
// The package only has types, their constants, and what a document says in words, so that every
// package may return documents without depending on a server or on net/http. An explanation is in
// package explain, next to the types of the trace that it holds. Lists of documents are never null
// unless the field says so.
package api
