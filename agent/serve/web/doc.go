// Package web serves a web page and, below api/, the API of the agent to that page.
//
// A browser attaches cookies to requests of any site, so each request passes a gate before it
// reaches a session: its Host must be an address or a configured name of the listener, its Origin
// and Sec-Fetch headers must be those of the page itself, and requests of the page carry a header
// that other sites cannot send. A session begins with a key that is valid once, or with a token of
// the API, and ends after a limited time.
//
// Without Options.Write, only requests that change nothing pass. Requests for the debug interface
// never pass.
package web
