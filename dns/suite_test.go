package dns

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// rows are the required features of a mesh resolver, with the numbers of the project's comparison
// of resolvers. Each test uses real sockets: of a server, of its clients, and of scripted name
// servers.
var rows = map[string]func(*testing.T){
	"30_addresses_from_a_table_that_is_swapped":        rowAddresses,
	"31_other_family_is_NODATA":                        rowOtherFamily,
	"32_SOA_in_negative_answers":                       rowSOA,
	"33_case_of_the_client_is_echoed":                  rowCase,
	"33_case_of_the_client_is_echoed_when_forwarded":   testCaseOfTheClientComesBack,
	"34_other_types_are_answered_here":                 rowOtherTypes,
	"35_unknown_name_under_an_owned_suffix":            rowUnknownName,
	"36_SRV_and_ANY":                                   rowSRV,
	"37_PTR":                                           rowPTR,
	"38_wildcards":                                     rowWildcards,
	"39_conflict_of_hostnames":                         rowConflict,
	"40_class_opcode_and_count":                        rowClassOpcodeCount,
	"41_OPT_iff_asked":                                 rowOPT,
	"42_size_over_UDP":                                 rowSize,
	"43_answers_stay_compressed":                       testAnswersStayCompressed,
	"44_upstream_that_ignores_sizes":                   testServerThatIgnoresSizes,
	"45_46_cut_answers_are_asked_for_over_TCP":         testTruncatedAnswersAreAskedForOverTCP,
	"47_TCP_pipelining":                                testPipelining,
	"47_TCP_out_of_order":                              rowOutOfOrder,
	"47_TCP_limits":                                    testTCPLimits,
	"47_TCP_connections_of_one_source":                 rowConnsOfOneSource,
	"48_fresh_random_IDs":                              testFreshRandomIDs,
	"49_many_source_ports":                             testManySourcePorts,
	"50_wrong_replies_are_ignored":                     testForgedRepliesAreIgnored,
	"51_mixed_case_upstream":                           testMixedCaseUpstream,
	"52_TTLs_count_down":                               testTTLsCountDown,
	"52_odd_TTLs":                                      testOddTTLs,
	"53_negative_cache":                                testNegativeAnswersAreKept,
	"53_failures_are_kept_for_a_second":                testFailuresAreKeptForASecond,
	"54_stale_answers":                                 testStaleAnswers,
	"55_prefetch":                                      testPrefetch,
	"56_57_coalescing":                                 testCoalescing,
	"57_AD_and_OPT":                                    testADAndOPT,
	"58_all_servers_in_order":                          testAllServersAreAskedInOrder,
	"58_options":                                       testServerOptions,
	"59_dead_servers_fail_in_time":                     testDeadServersFailInTime,
	"60_sole_server_is_never_blacked_out":              testSoleServerIsAlwaysAsked,
	"60_one_probe_at_a_time":                           testDeadServerIsProbed,
	"61_resolv_conf_is_watched":                        testResolvConfIsWatched,
	"62_search_and_ndots":                              rowSearch,
	"63_loops_are_seen":                                testLoopsAreSeen,
	"64_before_the_first_table":                        rowPending,
	"64_without_servers":                               testWithoutServers,
	"65_swaps_lose_nothing":                            testSwapLosesNothing,
	"66_sockets_outlive_a_server":                      testSocketsOutliveAServer,
	"67_68_flood_with_a_dead_server":                   testFloodWithADeadServer,
	"67_local_answers_do_not_wait":                     rowLocalDuringFlood,
	"69_views":                                         rowViews,
	"70_share_of_one_client":                           rowShare,
	"70_rate_of_one_client":                            rowRate,
	"71_counts":                                        rowCounts,
	"71_counts_of_servers":                             testStats,
	"72_sampled_queries":                               rowSampled,
	"72_why_a_name_resolves":                           rowLookup,
	"73_reply_leaves_from_the_address_asked":           testUDPAndTCP,
	"76_queries_and_replies_agree_with_another_parser": func(t *testing.T) { fuzzServer(t, randomMessages(2000)) },
	"76_malformed_answers":                             testMalformedAnswers,
}

// rowsOutside are the rows that other packages test.
var rowsOutside = map[int]string{
	74: "the interception: UDP and TCP of port 53 are redirected",
	75: "the interception: conntrack entries are deleted on install and uninstall",
}

// complaints are problems that users of other resolvers report.
var complaints = map[string]func(*testing.T){
	"reply_over_512_without_EDNS":      complaintLongReply,
	"TC_over_TCP":                      complaintTCOverTCP,
	"EDNS_size_ignored":                rowSize,
	"EDNS_options_echoed":              rowOPT,
	"AAAA_NXDOMAIN_kills_A":            complaintAAAA,
	"NODATA_without_SOA":               rowSOA,
	"NODATA_without_SOA_from_upstream": testNegativeAnswersAreKept,
	"HTTPS_forwarded_for_a_local_name": rowOtherTypes,
	"mixed_case_is_NXDOMAIN":           rowCase,
	"one_dead_name_server":             testDeadServerIsProbed,
	"one_failing_name_server":          testFailingServerIsPassedOver,
	"health_check_blackout":            testSoleServerIsAlwaysAsked,
	"stale_answers":                    testStaleAnswers,
	"growth_under_a_dead_upstream":     badFloodMemory,
	"mismatch_on_reused_ports_at_load": testEachClientGetsItsOwnAnswer,
	"spoofing":                         testFloodOfForgedReplies,
	"redirect_loop":                    testLoopsAreSeen,
	"A_and_AAAA_from_one_socket":       complaintPairs,
	"ndots_5":                          rowSearch,
	"resolv_conf_change_not_seen":      testResolvConfIsWatched,
	"cap_of_150_queries":               complaintCap,
	"coalescing_key_too_coarse":        testCoalescing,
	"wrong_source_on_wildcard_bind":    testUDPAndTCP,
	"reload_drops":                     testSwapLosesNothing,
	"reload_port_in_use":               testSocketsOutliveAServer,
	"same_address_with_two_ports":      rowSRV,
}

func TestRows(t *testing.T) { runAll(t, rows) }

func TestComplaints(t *testing.T) { runAll(t, complaints) }

// testedBy has the first test that ran a function, and its result. Rows, complaints, and bad
// input often share a function, which runs only once.
var testedBy = map[uintptr]testedIn{}

type testedIn struct {
	name            string
	failed, skipped bool
}

func runAll(t *testing.T, all map[string]func(*testing.T)) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			show := reflect.ValueOf(all[name]).Pointer()
			switch by, ran := testedBy[show]; {
			case !ran || by.name == t.Name(): // repeated by -count
			case by.failed:
				t.Fatalf("%s has failed", by.name)
			case by.skipped:
				t.Skipf("%s is skipped", by.name)
			default:
				t.Logf("shown by %s", by.name)
				return
			}
			t.Cleanup(func() { testedBy[show] = testedIn{t.Name(), t.Failed(), t.Skipped()} })
			all[name](t)
		})
	}
}

// Every row has a test.
func TestRowsAreComplete(t *testing.T) {
	seen := map[int]bool{}
	for name := range rows {
		for _, label := range strings.Split(name, "_") {
			n, err := strconv.Atoi(label)
			if err != nil {
				break
			}
			seen[n] = true
		}
	}
	for n := 30; n <= 76; n++ {
		if seen[n] == (rowsOutside[n] != "") {
			t.Errorf("row %d: tested here: %v, elsewhere: %q", n, seen[n], rowsOutside[n])
		}
	}
}

// kinds are the kinds of clients.
var kinds = []clientKind{{}, {size: 1232}, {tcp: true}, {tcp: true, size: 4096}}

// newMesh returns a tester whose server has names below the suffix mesh, and reverse names of
// 240.0.0.0/8. Forwarded queries fail the test unless a script is given.
func newMesh(t *testing.T, do func(*upstreamQuery), hosts ...table.Host) *tester {
	t.Helper()
	if do == nil {
		do = func(q *upstreamQuery) {
			t.Errorf("a name server is asked for %s", q.Question[0].String())
			q.Reply(t, mdns.RcodeNameError, nil, soa60)
		}
	}
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", do))
	c.swap(hosts...)
	return c
}

var meshOptions = table.Options{Suffixes: []string{"mesh", "240.in-addr.arpa"}}

func (c *tester) swap(hosts ...table.Host) {
	c.t.Helper()
	c.srv.Swap(table.NewAnswers(mustTable(c.t, meshOptions, hosts...), nil))
}

// want sends a query in all ways, and compares the records of all sections in text form.
func (c *tester) want(name, qtype string, rcode int, lines ...string) {
	c.t.Helper()
	typ, ok := mdns.StringToType[qtype]
	if !ok {
		c.t.Fatalf("there is no type %s", qtype)
	}
	for _, k := range kinds {
		m := c.query(k, name, typ)
		got := append(append(texts(m.Answer), texts(m.Ns)...), texts(m.Extra)...)
		if m.Rcode != rcode || !slices.Equal(got, lines) || m.Truncated || m.Question[0].Name != mdns.Fqdn(name) {
			c.t.Errorf("%s %s, asked as %+v: %s %v, want %s %v", name, qtype, k, mdns.RcodeToString[m.Rcode], got,
				mdns.RcodeToString[rcode], lines)
		}
	}
}

func soaOf(zone string) string {
	return fmt.Sprintf("%s 5 IN SOA ns.%s hostmaster.%s 1 3600 600 86400 5", zone, zone, zone)
}

func host(name string, list ...string) table.Host {
	return table.Host{Name: name, Addrs: addrs(list...)}
}

// manyHost returns a host with more addresses than fit into 512 bytes.
func manyHost(name string, n int) table.Host {
	h := table.Host{Name: name}
	for i := range n {
		h.Addrs = append(h.Addrs, netip.AddrFrom4([4]byte{240, 0, 1, byte(i)}))
	}
	return h
}

// ownAddress returns an address of this host that is not a loopback address.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return netip.AddrFrom4([4]byte(n.IP.To4()))
		}
	}
	t.Skip("this host has no address but that of the loopback interface")
	return netip.Addr{}
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func mustTable(t testing.TB, o table.Options, hosts ...table.Host) *table.Table {
	t.Helper()
	names, errs := table.New(o, hosts)
	for _, err := range errs {
		t.Fatal(err)
	}
	return names
}

func texts(rrs []mdns.RR) (out []string) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != mdns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return out
}
