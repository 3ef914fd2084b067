package reconcile_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// tagVIP returns the IPv4 address of a tag service in the last result.
func tagVIP(r *reconcile.Reconciler, name string) string {
	s := r.Last().Meshes["default"].View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: name})
	if s == nil {
		return "none"
	}
	return s.VIP.String()
}

func taggedAt(name, service string) string {
	return "---\ntype: Dataplane\nmesh: default\nname: " + name +
		"\nnetworking:\n  address: 10.0.0.1\n  inbound:\n  - {port: 80, tags: {kuma.io/service: " + service + "}}\n"
}

// fill replaces the dataplanes in the store by documents.
func fill(t *testing.T, s *store.Store, text string) {
	t.Helper()
	agenttest.ByAPI(t, s, text)
	wanted := map[resource.Key]bool{}
	for _, r := range agenttest.Decoded(t, text) {
		wanted[r.Key] = true
	}
	var ops []store.Op
	for _, d := range s.Snapshot().Set().Kind("Dataplane") {
		if !wanted[d.Key] {
			ops = append(ops, store.Op{Delete: d.Key})
		}
	}
	if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

// TestAddressesOutliveTheAgent gives two services addresses from a range of two, in their order of
// arrival, which differs from the order of their names. So only persistence explains that they keep
// them after a restart, and that a deleted service gets its address back if it returns in time.
func TestAddressesOutliveTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *store.Store
		path, p := filepath.Join(t.TempDir(), "nearside.db"), agenttest.NewPublisher()
		start := func() *reconcile.Reconciler {
			s = storeAt(t, s, path)
			return reconcile.New(reconcile.Options{Store: s, Publisher: p, VIPs: virtualip.Options{
				Ranges: virtualip.Ranges{Tag: virtualip.Range{V4: netip.MustParsePrefix("240.0.0.0/31")}}, Hold: time.Hour}})
		}
		see := func(r *reconcile.Reconciler, doc string) {
			t.Helper()
			fill(t, s, "type: Mesh\nname: default\n"+doc)
			r.Pass()
		}
		r := start()
		see(r, taggedAt("one", "zebra"))
		zebra := tagVIP(r, "zebra")
		see(r, taggedAt("one", "zebra")+taggedAt("two", "ant"))
		ant := tagVIP(r, "ant")
		if ant == zebra || !strings.HasPrefix(ant, "240.0.0.") {
			t.Fatalf("ant has %s, zebra has %s", ant, zebra)
		}

		r = start()
		see(r, taggedAt("one", "zebra")+taggedAt("two", "ant"))
		if tagVIP(r, "zebra") != zebra || tagVIP(r, "ant") != ant {
			t.Errorf("after a restart: zebra %s, ant %s; want %s and %s", tagVIP(r, "zebra"), tagVIP(r, "ant"), zebra, ant)
		}

		// A third service gets the address of a deleted one when it expires, also after a restart,
		// without another trigger.
		see(r, taggedAt("one", "zebra")+taggedAt("three", "bee"))
		if got := tagVIP(r, "bee"); got != "invalid IP" {
			t.Fatalf("bee has %s, which is zebra's or may be ant's again", got)
		}
		r = start()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		synctest.Wait()
		time.Sleep(50 * time.Minute)
		if got := tagVIP(r, "bee"); got != "invalid IP" {
			t.Errorf("bee has %s before the address expired", got)
		}
		time.Sleep(20 * time.Minute)
		if got := tagVIP(r, "bee"); got != ant {
			t.Errorf("bee has %s, want %s, which is free by now", got, ant)
		}
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// diskReader is a publisher that reads the stored addresses when it gets a config.
type diskReader struct {
	*agenttest.Publisher
	path   string
	stored map[string]string
}

func (p *diskReader) Publish(configs map[node.Key]rollout.Config) {
	data, _ := os.ReadFile(p.path)
	copied := p.path + ".copy"
	if err := os.WriteFile(copied, data, 0o600); err == nil && p.stored == nil && len(configs) > 0 {
		if s, err := store.Open(store.Options{Path: copied, Encode: resource.Marshal,
			Decode: func([]byte) (*resource.Resource, error) {
				return nil, errors.New("not needed")
			}}); err == nil {
			p.stored = s.Addresses()
			s.Close()
		}
	}
	p.Publisher.Publish(configs)
}

// TestAddressesAreStoredFirst checks that addresses are on disk when a proxy gets its first config.
func TestAddressesAreStoredFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nearside.db")
	s := storeAt(t, nil, path)
	fill(t, s, "type: Mesh\nname: default\n"+taggedAt("one", "web"))
	p := &diskReader{Publisher: agenttest.NewPublisher("default.one"), path: path}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p})
	r.Pass()
	if v := p.stored[`"default" "" "web"`]; !strings.HasPrefix(v, tagVIP(r, "web")+" ") {
		t.Errorf("on disk before the config was published: %q", p.stored)
	}
}

// storeAt closes a store, if there is one, and opens the file at path.
func storeAt(t *testing.T, before *store.Store, path string) *store.Store {
	t.Helper()
	if before != nil {
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(store.Options{Path: path, Encode: resource.Marshal,
		Decode: func(b []byte) (*resource.Resource, error) {
			return agenttest.Decoded(t, string(b))[0], nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestOldAddresses starts with the file of an earlier version, valid and damaged.
func TestOldAddresses(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "vips"), filepath.Join(dir, "nearside.db")
	s, p := storeAt(t, nil, path), agenttest.NewPublisher()
	fill(t, s, "type: Mesh\nname: default\n"+taggedAt("one", "web"))
	start := func() (*reconcile.Reconciler, string) {
		l := agenttest.NewLogs()
		r := reconcile.New(reconcile.Options{Store: s, Publisher: p, VIPFile: file, Log: l.Logger()})
		r.Pass()
		return r, l.String()
	}
	agenttest.Write(t, file, "nearside-vips 1\n\"default\"")
	r, logged := start()
	if _, err := os.Stat(file + ".damaged"); err != nil || !strings.Contains(logged, "renamed") ||
		tagVIP(r, "web") == "none" {
		t.Errorf("%v, logged %q", err, logged)
	}

	s = storeAt(t, s, filepath.Join(dir, "other.db"))
	fill(t, s, "type: Mesh\nname: default\n"+taggedAt("one", "web"))
	agenttest.Write(t, file, "nearside-vips 1\n\"default\" \"\" \"web\" 240.1.2.3 - -\nend 1\n")
	if r, logged = start(); tagVIP(r, "web") != "240.1.2.3" || logged != "" {
		t.Errorf("from the file: %s, logged %q", tagVIP(r, "web"), logged)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	s = storeAt(t, s, filepath.Join(dir, "other.db"))
	if r, _ = start(); tagVIP(r, "web") != "240.1.2.3" {
		t.Errorf("from the store: %s", tagVIP(r, "web"))
	}
}

func TestConfigVIPs(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"only one family", "vips: {tag: [240.1.0.0/16], families: DualStack}\n", ""},
		{"both", "vips: {tag: ['fd12::/64', 240.1.0.0/28]}\n", ""},
		{"all of 240/4 for tags", "vips: {tag: [240.0.0.0/4]}\n",
			"vips.meshService: 241.0.0.0/8 overlaps 240.0.0.0/4 of vips.tag"},
		{"no range", "vips: {tag: [many]}\n",
			"vips.tag[0]: \"many\" is not a range of addresses; use a prefix like 240.0.0.0/8"},
		{"host bits", "vips: {tag: [240.0.0.1/8]}\n", "has bits set after the prefix length 8; use 240.0.0.0/8"},
		{"too short", "vips: {tag: [248.0.0.0/3]}\n", "has bits set after the prefix length"},
		{"too large", "vips: {tag: [224.0.0.0/3]}\n", "has the prefix length /3; allowed are /4 to /28"},
		{"too small", "vips: {tag: [240.0.0.0/29]}\n", "has the prefix length /29; allowed are /4 to /28"},
		{"too small, IPv6", "vips: {tag: ['fd00::/121']}\n", "has the prefix length /121; allowed are /32 to /120"},
		{"mapped", "vips: {tag: ['::ffff:240.0.0.0/104']}\n", "is not a range of addresses"},
		{"loopback", "vips: {meshService: [127.0.0.0/16]}\n", "overlaps 127.0.0.0/8, where no service can listen"},
		{"link-local", "vips: {meshService: ['fe80::/64']}\n", "overlaps fe80::/10"},
		{"one family twice", "vips: {meshExternalService: [10.1.0.0/16, 10.2.0.0/16]}\n",
			"have the same address family; use one range per family"},
		{"three", "vips: {meshExternalService: [10.1.0.0/16, 'fd09::/64', 10.2.0.0/16]}\n", "has 3 items; at most 2"},
		{"inside another", "vips: {meshMultiZoneService: ['fd00:fd01::8000:0/100']}\n",
			"vips.meshMultiZoneService: fd00:fd01::8000:0/100 overlaps fd00:fd01::/64 of vips.meshService"},
		{"families", "vips: {families: IPv6}\n", "vips.families: \"IPv6\" is not known; one of IPv4, DualStack"},
		{"for ever", "vips: {releaseAfter: 99999999}\n", "vips.releaseAfter: 99999999 is too large"},
	} {
		_, _, got := agenttest.LoadConfig(t, c.file, nil, nil)
		if all := strings.Join(got, "\n"); c.want == "" && got != nil || c.want != "" && !strings.Contains(all, c.want) {
			t.Errorf("%s: got %v, want %q", c.name, got, c.want)
		}
	}
}
