package intercept

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), DirName)
	r := Record{Netns: "/run/netns/pod", Inode: 7, Spec: Spec{DNSPort: 15053, Users: []uint32{2, 1, 2},
		ExcludeOutboundCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8")}, Outbound: 1, EnvoyUsers: []uint32{5}}}
	r.Spec.Normalize()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	list, errs := readRecords(dir)
	if len(errs) > 0 || len(list) != 1 || list[0].Spec.String() != r.Spec.String() ||
		list[0].Spec.ExcludeOutboundCIDRs[0].String() != "10.0.0.0/8" {
		t.Fatalf("read %+v, %v", list, errs)
	}
	for name, c := range map[string]struct {
		text, want string
		mode       os.FileMode
	}{
		"8.json":  {`{"inode": 9, "spec": {"dnsPort": 15053}}`, "inode is 9", 0o644},
		"10.json": {`{"inode": 10, "spec": {"dnsPort": 15053}, "more": 1}`, "unknown field", 0o644},
		"11.json": {`{"inode": 11, "spec": {}}`, "nothing is redirected", 0o644},
		"12.json": {`{"inode": 12, "spec": {"dnsPort": 15053}}`, "chmod go-w", 0o666},
		"13.json": {`{"inode": 13, "netns": "pod", "spec": {"dnsPort": 15053}}`, "not absolute", 0o644},
		"14.json": {strings.Repeat(" ", maxRecord) + `{}`, "larger than", 0o644},
		"15.json": {`{"inode": 15, "spec": {"dnsPort": 15053}} {}`, "after the record", 0o644},
	} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, c.mode); err != nil {
			t.Fatal(err)
		}
		list, errs := readRecords(dir)
		if len(list) != 1 || len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) ||
			!strings.Contains(errs[0].Error(), at) {
			t.Errorf("%s: %d records, faults %v, want %q", name, len(list), errs, c.want)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("7.json", filepath.Join(dir, "16.json")); err != nil {
		t.Fatal(err)
	}
	if list, errs := readRecords(dir); len(list) != 1 || len(errs) != 1 ||
		!strings.Contains(errs[0].Error(), "symbolic link") {
		t.Errorf("a link: %v, %v", list, errs)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if list, errs := readRecords(dir); len(list) != 0 || len(errs) != 1 ||
			!strings.Contains(errs[0].Error(), "belongs to uid 65534") {
			t.Errorf("a directory of another user: %v, %v", list, errs)
		}
	}
	if list, errs := readRecords(filepath.Join(dir, "none")); len(list)+len(errs) != 0 {
		t.Errorf("no directory: %v, %v", list, errs)
	}
}

// TestAgentsUser: if root installs, the agent's user owns the directory and the lock.
func TestAgentsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: giving files away needs root")
	}
	run := t.TempDir()
	if err := os.Chown(run, 65534, -1); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(run, DirName)
	r := Record{Inode: 7, Spec: Spec{DNSPort: 15053}}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		unlock, err := lockRecords(dir)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	for path, want := range map[string]uint32{dir: 65534, filepath.Join(dir, ".lock"): 65534, recordPath(dir, 7): 0} {
		st, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; uid != want {
			t.Errorf("%s belongs to uid %d, want %d", path, uid, want)
		}
	}
	if list, errs := readRecords(dir); len(list) != 1 || len(errs) > 0 {
		t.Errorf("read %v, %v", list, errs)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"netns":"/run/netns/a","inode":1,"spec":{"dnsPort":15053,"users":[1],"cgroups":["a/b"],"excludeOutboundCIDRs":["10.0.0.0/8","fd00::/8"]}}`))
	f.Add([]byte(`{"spec":{"outbound":15001,"inbound":15006,"envoyUsers":[1],"excludeInboundPorts":[22]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		one := NewRuleset(&r.Spec, nil, true).String()
		encoded, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := decodeRecord(encoded)
		if err != nil {
			t.Fatalf("%v, of %s", err, encoded)
		}
		if two := NewRuleset(&s.Spec, nil, true).String(); one != two {
			t.Errorf("another ruleset after writing and reading:\n%s\n%s", one, two)
		}
	})
}

// FuzzCanary: a server with arbitrary responses does not count as the agent unless it returns the
// canary address.
func FuzzCanary(f *testing.F) {
	q := canaryQuery(7)
	good := append([]byte(nil), q...)
	good[2], good[3], good[7] = 0x85, 0x80, 1
	good = append(append(good, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4), canaryAddr().AsSlice()...)
	if err := checkCanary(q, good); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(q)
	f.Fuzz(func(t *testing.T, reply []byte) {
		if err := checkCanary(q, reply); err == nil && !strings.HasSuffix(string(reply), string(canaryAddr().AsSlice())) {
			t.Errorf("% x is taken for the agent", reply)
		}
	})
}

func TestValidate(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, c := range []struct {
		spec Spec
		want string // "" if valid
	}{
		{Spec{DNSPort: 15053}, ""},
		{Spec{}, "nothing is redirected"},
		{Spec{DNSPort: 53}, "--dns-port: 53"},
		{Spec{Outbound: 15001}, "--envoy-user is required"},
		{Spec{Outbound: 15001, Inbound: 15001, EnvoyUsers: []uint32{1}}, "distinguishes them by port"},
		{Spec{DNSPort: 15001, Outbound: 15001, EnvoyUsers: []uint32{1}}, "must differ"},
		{Spec{Inbound: 15006, Users: []uint32{1}}, "whole network namespace"},
		{Spec{DNSPort: 15053, Users: []uint32{1}, ExcludeUsers: []uint32{1}}, "both have uid 1"},
		{Spec{DNSPort: 15053, Cgroups: []string{"."}}, "is the root cgroup"},
		{Spec{DNSPort: 15053, Cgroups: []string{"../../x"}}, "not the path of a cgroup"},
		{Spec{DNSPort: 15053, Cgroups: []string{`a" }`}}, "not the path of a cgroup"},
		{Spec{DNSPort: 15053, Cgroups: []string{strings.Repeat("a/", 32) + "a"}}, "33 levels deep"},
		{Spec{DNSPort: 15053, Users: make([]uint32, 257)}, "--user has 257 values"},
		{Spec{Virtual: 15002, Inbound: 1, VirtualCIDRs: []netip.Prefix{prefix("240.0.0.0/8")}}, "--outbound is required"},
		{Spec{Virtual: 15002, Outbound: 15001, EnvoyUsers: []uint32{1}}, "--virtual-cidr is required"},
		{Spec{Outbound: 15001, EnvoyUsers: []uint32{1}, VirtualCIDRs: []netip.Prefix{prefix("240.0.0.0/8")}},
			"only with --outbound-virtual"},
		{Spec{Virtual: 15001, Outbound: 15001, EnvoyUsers: []uint32{1}, VirtualCIDRs: []netip.Prefix{prefix("240.0.0.0/8")}},
			"which another flag also names"},
		{Spec{Inbound: 1, ExcludeInboundCIDRs: []netip.Prefix{prefix("0.0.0.0/0")}}, "is not a valid network"},
		{Spec{Inbound: 1, ExcludeInboundPorts: []uint16{0}}, "0 is not a valid port"},
	} {
		err := c.spec.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
	}
}
