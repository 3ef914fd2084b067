package metric

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sidecar(profile string, include ...Selector) *Sidecar {
	return &Sidecar{Profiles: &Profiles{AppendProfiles: &[]Profile{{Name: profile}}, Include: &include}}
}

// TestBasic checks names of Envoy's statistics
// (https://www.envoyproxy.io/docs/envoy/latest/operations/stats_overview) that the profile
// includes, and some that it does not.
func TestBasic(t *testing.T) {
	var none *Sidecar
	re := regexp.MustCompile(none.filter())
	for _, name := range []string{
		"cluster.api.upstream_rq_total", "cluster.api.upstream_rq_200",
		"cluster.api.upstream_rq_time", "cluster.api.upstream_cx_length_ms", "cluster.api.upstream_cx_rx_bytes_total",
		"cluster.api.upstream_cx_connect_timeout", "cluster.api.health_check.attempt", "cluster.api.lb_healthy_panic",
		"cluster.api.upstream_cx_destroy_remote", "cluster.api.membership_healthy", "cluster.api.membership_total",
		"cluster.api.outlier_detection.ejections_active", "cluster.api.circuit_breakers.default.cx_open",
		"cluster.api.ssl.handshake", "http.localhost_80.downstream_cx_active",
		"http.localhost_80.no_route", "http.localhost_80.rbac.allowed", "listener.10.0.0.1_80.no_filter_chain_match",
		"listener.10.0.0.1_80.server_ssl_socket_factory.ssl_context_update_by_sds", "server.uptime",
		"server.days_until_first_cert_expiring", "control_plane.connected_state", "dns.cares.pending_resolutions",
	} {
		if !re.MatchString(name) {
			t.Errorf("%s is not served", name)
		}
	}
	for _, name := range []string{
		"cluster.api.version", "cluster_manager.cluster_added", "listener_manager.total_listeners_active",
		"runtime.num_keys", "http.localhost_80.tracing.random_sampling",
	} {
		if re.MatchString(name) {
			t.Errorf("%s is served", name)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *Sidecar
		want string
	}{
		{"no profiles", &Sidecar{}, basic},
		{"no profile named", &Sidecar{Profiles: &Profiles{AppendProfiles: &[]Profile{}}}, basic},
		{"all", sidecar(profileAll, Selector{selectExact, "envoy_a"}), ""},
		{"none", sidecar(profileNone), nothing},
		{"none and one", sidecar(profileNone, Selector{selectPrefix, "envoy_server"}), "^server"},
		{"the broadest counts", &Sidecar{Profiles: &Profiles{AppendProfiles: &[]Profile{{profileNone}, {profileBasic}}}},
			basic},
		{"a regular expression is about other names", sidecar(profileNone, Selector{selectRegex, "a"}), ""},
		{"the whole family", sidecar(profileNone, Selector{selectPrefix, "envoy"}), ""},
		{"no such name", sidecar(profileNone, Selector{selectContains, "a.b"}), nothing},
		{"another namespace", sidecar(profileNone, Selector{selectPrefix, "istio"}), "istio"},
		{"across the family", sidecar(profileNone, Selector{selectContains, "y_se"}), "y" + gap + "se|^se"},
	} {
		if got := c.s.filter(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFilterHolds checks that the filter includes by Envoy's name every statistic that a selector
// selects by its Prometheus name. It derives Prometheus names like Envoy: it removes segments that
// become labels and replaces invalid characters by underscores.
func TestFilterHolds(t *testing.T) {
	other := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	rapid.Check(t, func(t *rapid.T) {
		var raw, extracted []string
		for i, n := 0, rapid.IntRange(1, 5).Draw(t, "parts"); i < n; i++ {
			word := rapid.StringMatching(`[a-z]{1,4}(_[a-z0-9]{1,3}){0,2}`).Draw(t, "word")
			raw = append(raw, word)
			if i > 0 && rapid.Bool().Draw(t, "label") {
				raw[i] = rapid.StringMatching(`[a-z0-9_:-]{1,8}`).Draw(t, "value")
			} else {
				extracted = append(extracted, word)
			}
		}
		stat := strings.Join(raw, ".")
		name := family + other.ReplaceAllString(strings.Join(extracted, "."), "_")
		q := Selector{Type: rapid.SampledFrom([]string{selectPrefix, selectExact, selectContains}).Draw(t, "type"),
			Match: name}
		switch q.Type {
		case selectPrefix:
			q.Match = name[:rapid.IntRange(1, len(name)).Draw(t, "to")]
		case selectContains:
			from := rapid.IntRange(0, len(name)-1).Draw(t, "from")
			q.Match = name[from:rapid.IntRange(from+1, len(name)).Draw(t, "to")]
		}
		pattern := sidecar(profileNone, q).filter()
		if !regexp.MustCompile(pattern).MatchString(stat) {
			t.Fatalf("%s %q selects %s, and %q excludes %s", q.Type, q.Match, name, pattern, stat)
		}
	})
}

// TestQuery checks that a query that Envoy appends does not change the parameters, of which the
// first with a name applies.
func TestQuery(t *testing.T) {
	for _, more := range []string{"", "?a=b", "?usedonly=no&filter=x"} {
		v, err := url.ParseQuery(query(nil) + more)
		if err != nil {
			t.Fatal(err)
		}
		if v.Get("filter") != basic || !v.Has("usedonly") || v.Get("usedonly") != "" {
			t.Errorf("%s gives %v", more, v)
		}
	}
	unused := true
	if got := query(&Sidecar{IncludeUnused: &unused, Profiles: sidecar(profileAll).Profiles}); got != "client=" {
		t.Errorf("for everything: %q", got)
	}
}
