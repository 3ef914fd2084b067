package logline

// Formats of policies without a format, for requests and connections. They are Kuma's.
const (
	DefaultHTTP = `[%START_TIME%] %KUMA_MESH% "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` + `%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%KUMA_SOURCE_SERVICE%" ` +
		`"%KUMA_DESTINATION_SERVICE%" "%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%" "%UPSTREAM_HOST%"`
	DefaultTCP = `[%START_TIME%] %RESPONSE_FLAGS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->` +
		`%UPSTREAM_HOST%(%KUMA_DESTINATION_SERVICE%) took %DURATION%ms, sent %BYTES_SENT% bytes, received: %BYTES_RECEIVED% bytes`
)

// Formats of policies without a format, for refused connections. There is no upstream, so they
// contain what the client requested: the dialed address, the server name, and the TLS inspector's
// reason if there is no TLS. The keyword is no_filter_chain if no chain matched, and closed if
// nothing is permitted; Envoy's response code details precede it.
const (
	DefaultUnmatched = refusedHead + "no_filter_chain" + refusedTail
	DefaultClosed    = refusedHead + "closed" + refusedTail

	refusedHead = `[%START_TIME%] %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->` +
		`%DOWNSTREAM_LOCAL_ADDRESS%(%KUMA_DESTINATION_SERVICE%) refused: `
	refusedTail = `, sni %REQUESTED_SERVER_NAME%, tls %DYNAMIC_METADATA(envoy.filters.listener.tls_inspector:failure_reason)%, client %DOWNSTREAM_REMOTE_ADDRESS%`
)

// Defaults returns the formats of policies without a format. They contain [Placeholders].
func Defaults() []Format {
	return []Format{{Text: DefaultHTTP}, {Text: DefaultTCP}, {Text: DefaultUnmatched}, {Text: DefaultClosed}}
}

// Placeholders returns the operators of formats that are replaced before Envoy reads them.
func Placeholders() []string {
	return []string{"KUMA_SOURCE_ADDRESS", "KUMA_SOURCE_ADDRESS_WITHOUT_PORT", "KUMA_SOURCE_SERVICE",
		"KUMA_DESTINATION_SERVICE", "KUMA_MESH", "KUMA_TRAFFIC_DIRECTION", "KUMA_ZONE", "KUMA_WORKLOAD"}
}
