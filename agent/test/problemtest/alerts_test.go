package problemtest

import (
	"slices"
	"strings"
	"testing"
)

// firing maps each alert to series with which it fires.
var firing = map[string]map[string]string{
	"NearsideAgentDown":       {`up{job="nearside"}`: "1x5 0x60"},
	"NearsideAgentRestarts":   {`process_start_time_seconds{job="nearside"}`: "0x5 1 2 3 4 4x60"},
	"NearsideConfigRejected":  {`nearside_xds_nacks_total{type="listener"}`: "0x5 1x60"},
	"NearsidePolicyRejected":  {`nearside_policies{kind="MeshTimeout",state="rejected"}`: "0x5 1x60"},
	"NearsidePolicyNoEffect":  {`nearside_policies{kind="MeshTimeout",state="no-effect"}`: "0x5 1x60"},
	"NearsideConfigHeld":      {`nearside_xds_held_resources{by="check"}`: "0x5 1x60"},
	"NearsideProxiesGone":     {`nearside_xds_connected_proxies`: "10x5 4x60"},
	"NearsideStreamsRefused":  {`nearside_xds_streams_refused_total{reason="denied"}`: "0x5 20x60"},
	"NearsideMemoryShort":     {`nearside_memory_refused_proxies`: "0x5 1x60"},
	"NearsideStateNotWritten": {`nearside_state_pending_resources`: "0x5 1x60"},
	"NearsideCertificateEnds": {
		`nearside_certificate_expiration_timestamp_seconds{mesh="m",certificate="proxy"}`: "90000x5 3900x60",
	},
	"NearsideAuthorityEnds": {
		`nearside_certificate_expiration_timestamp_seconds{mesh="m",certificate="authority"}`: "9999999x5 2000000x60",
	},
	"NearsideUpstreamsFail":   {`nearside_dns_upstream_failures_total{reason="timeout"}`: "0x5 600+600x60"},
	"NearsidePoolDiffers":     {`nearside_gossip_differs_seconds`: "0x5 31+60x60"},
	"NearsidePoolFilesDiffer": {`nearside_gossip_members_with_other_files`: "0x5 1x60"},
	"NearsideDNSLoop":         {`nearside_dns_loops_total`: "0x5 1x60"},
	"NearsideLogLinesDropped": {
		`nearside_log_records_dropped_total{kind="file",receiver="t",reason="disk-full"}`: "0x5 1x60",
	},
	"NearsideLogSpoolGrows":        {`nearside_log_spool_bytes{receiver="t"}`: "0x5 600000000x60"},
	"NearsideLogSpoolOld":          {`nearside_log_spool_oldest_seconds{destination="tcp a:1"}`: "0x5 31x60"},
	"NearsideLogCollectorStalled":  {`nearside_log_stalled_seconds{destination="tcp a:1"}`: "0x5 31x60"},
	"NearsideLogFails":             {`nearside_log_failing_streams{kind="file",destination="file a"}`: "0x5 1x60"},
	"NearsideLogDirectoryReplaced": {`nearside_log_directory_changes_total{kind="file",destination="file a"}`: "0x5 1x60"},
	"NearsideLogSendersRefused":    {`nearside_log_connections_refused_total{receiver="t"}`: "0x5 1x60"},
	"NearsideListenersWithoutLog": {`nearside_log_listeners_without_log`: "0x5 1x60",
		`nearside_log_unlogged_connections_total`: "0x70"},
	"NearsideAuditEventsDropped": {`nearside_audit_events_dropped_total{reason="full"}`: "0x5 1x60"},
	"NearsideAuditFileChanged":   {`nearside_audit_file_changes_total`: "0x5 1x60"},
	"NearsideAuditChainBroken":   {`nearside_audit_chain_broken`: "0x5 1x60"},
	"NearsideAuditWritesRefused": {`nearside_audit_writes_refused_total`: "0x5 1x60"},
	"NearsideWrongTokens":        {`nearside_api_auth_failures_total{reason="invalid"}`: "0x5 30x60"},
	"NearsideProblems":           {`nearside_problems{check="state",severity="error"}`: "0x5 1x60"},
	"NearsideResourceFiles":      {`nearside_resource_file_faults`: "0x5 1x60"},
	"NearsideMembersDead":        {`nearside_gossip_members{state="dead"}`: "0x5 1x60"},
	"NearsideProxyLogLinesLost": {`nearside_proxy_log_writes_failed_total`: "0x5 1x60",
		`nearside_proxy_log_reopens_failed_total`: "0x70"},
	"NearsidePoolMessagesDropped": {`nearside_gossip_messages_dropped_total{reason="busy"}`: "0x5 20x60"},
	"NearsideQueriesDropped":      {`nearside_dns_requests_total{type="A",result="dropped"}`: "0x5 1x60"},
	"NearsideQueriesNotForwarded": {`nearside_dns_forward_refused_total{reason="waiters"}`: "0x5 1x60"},
	"NearsideQueryLogDropped":     {`nearside_dns_query_log_records_dropped_total{reason="full"}`: "0x5 1x60"},
	"NearsideSlow": {`nearside_reconcile_duration_seconds_bucket{le="5"}`: "0x70",
		`nearside_reconcile_duration_seconds_bucket{le="10"}`:   "0x5 1+1x60",
		`nearside_reconcile_duration_seconds_bucket{le="+Inf"}`: "0x5 1+1x60"},
	"NearsidePoolSlow": {`nearside_gossip_convergence_seconds_bucket{le="10"}`: "0x70",
		`nearside_gossip_convergence_seconds_bucket{le="30"}`:   "0x5 1+1x60",
		`nearside_gossip_convergence_seconds_bucket{le="+Inf"}`: "0x5 1+1x60"},
}

// TestEveryAlertFires checks that each alert fires with its series, and that it does not while the
// series keep their first values.
func TestEveryAlertFires(t *testing.T) {
	all := alerts(t)
	var cases []alertCase
	for _, name := range all {
		if firing[name] == nil {
			t.Errorf("there are no series for %s", name)
		}
		quiet := map[string]string{}
		for series, values := range firing[name] {
			first, _, _ := strings.Cut(values, "x")
			quiet[series] = first + "x70"
		}
		cases = append(cases, alertCase{name, firing[name], map[string]bool{name: true}},
			alertCase{"quiet " + name, quiet, map[string]bool{name: false}})
	}
	for name := range firing {
		if !slices.Contains(all, name) {
			t.Errorf("%s is no alert", name)
		}
	}
	testAlerts(t, cases)
}
