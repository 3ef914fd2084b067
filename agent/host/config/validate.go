package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// faultFunc records a fault of a key.
type faultFunc func(key, format string, args ...any)

// Validate checks the config as a whole, in addition to the checks of single keys in [Load]. A
// config that was not loaded must have absolute paths. [Config.CheckKinds] checks the resource
// kinds in api.roles.
func (c *Config) Validate() strict.Faults {
	var out strict.Faults
	fault := func(key, format string, args ...any) {
		out = append(out, strict.Fault{Field: key, Reason: fmt.Sprintf(format, args...)})
	}
	checkPaths(c.fields(), fault)
	if c.API.Socket.Path == c.XDS.Socket.Path {
		fault("xds.socket.path", "%s is also api.socket.path; use different paths", c.XDS.Socket.Path)
	}
	if c.API.TCP != "" && c.API.TCP == c.XDS.TCP && !strings.HasSuffix(c.API.TCP, ":0") {
		fault("xds.tcp", "%q is also api.tcp; use different addresses", c.XDS.TCP)
	}
	c.checkXDS(fault)
	c.checkUI(fault)
	c.checkWebhook(fault)
	c.checkReceivers(fault)
	c.checkAccess(fault)
	c.checkRanges(fault)
	c.checkDNS(fault)
	c.checkIntercept(fault)
	c.checkGossip(fault)
	return out
}

func checkPaths(fields []field, fault faultFunc) {
	for _, f := range fields {
		for _, keys := range f.items() {
			checkPaths(keys, fault)
		}
		if !f.has("path") {
			continue
		}
		if f.at.Kind() == reflect.Slice && !f.hasItems() {
			for i := range f.at.Len() {
				if p := f.at.Index(i).String(); p == "" || p[0] != '/' {
					fault(fmt.Sprintf("%s[%d]", f.path, i), "%.64q is not an absolute path", p)
				}
			}
			continue
		}
		switch p := f.at.String(); {
		case p == "" && f.has("required"):
			fault(f.path, "is empty; set a path")
		case p != "" && p[0] != '/':
			fault(f.path, "%.64q is not an absolute path", p)
		case f.tag.Get("check") == "socket" && len(p) > MaxSocketBytes:
			fault(f.path, "%s has %d bytes, and the system takes at most %d for a socket; "+
				"set a shorter path or a shorter paths.run", p, len(p), MaxSocketBytes)
		}
	}
}

// checkXDS checks the protection of xds.tcp and metrics.listen.
func (c *Config) checkXDS(fault faultFunc) {
	tls := &c.XDS.TLS
	if tls.Key != "" && tls.Cert == "" {
		fault("xds.tls.key", "%q has no certificate; set xds.tls.cert too", tls.Key)
	}
	if tls.Cert != "" && tls.Key == "" {
		fault("xds.tls.cert", "%q has no private key; set xds.tls.key too", tls.Cert)
	}
	if tls.ClientCA != "" && tls.Cert == "" {
		fault("xds.tls.clientCA", "%q has no effect without TLS; set xds.tls.cert and xds.tls.key too", tls.ClientCA)
	}
	switch m := c.Metrics; {
	case m.Listen != "" && m.TokenFile == "":
		fault("metrics.tokenFile",
			"is required: otherwise every host that reaches %s could read the metrics; set a file with a token of at least 16 "+
				"characters", m.Listen)
	case m.Listen != "" && !strings.HasSuffix(m.Listen, ":0") && (m.Listen == c.API.TCP || m.Listen == c.XDS.TCP):
		fault("metrics.listen", "%q is also api.tcp or xds.tcp; use different addresses", m.Listen)
	}
	if rest, err := filepath.Rel(c.Paths.Run, c.XDS.Pods); c.XDS.Pods != "" && (err != nil || !filepath.IsLocal(rest) ||
		rest == ".") {
		fault("xds.pods", "%.256q is not a directory below paths.run, so FIFOs could not be linked into it; "+
			"set it to \"pods\"", c.XDS.Pods)
	}
	if c.XDS.TCP != "" && tls.Cert == "" && !c.XDS.Insecure && !isLoopback(c.XDS.TCP) {
		fault("xds.tcp", "%q is not a loopback address, and tokens and configs would cross the network unencrypted; "+
			"set xds.tls.cert and xds.tls.key, use 127.0.0.1 or [::1], or set xds.insecure: true to allow it", c.XDS.TCP)
	}
}

// checkAccess checks access rules and resource directories.
func (c *Config) checkAccess(fault faultFunc) {
	_, err := access.NewProxies(access.ProxyOptions{Rules: c.XDS.Access, GID: -1})
	splitFaults(err, fault)
	roles, err := access.NewRoles(access.RoleOptions{Roles: c.API.Roles, GID: -1})
	splitFaults(err, fault)

	for i, d := range c.Resources.Dir {
		at := fmt.Sprintf("resources.dir[%d]", i)
		for j, o := range c.Resources.Dir[:i] {
			a, b := filepath.Clean(d.Path), filepath.Clean(o.Path)
			switch {
			case a == b:
				fault(at+".path", "%s is also item [%d]; list each directory once", d.Path, j)
			case isBelow(a, b) || isBelow(b, a):
				fault(at+".path", "%s and %s of item [%d] are nested; use separate directories", d.Path, o.Path, j)
			}
		}
		c.checkPublished(i, fault)
		if d.Role == "" {
			continue
		}
		if _, known := roles.RoleMay(d.Role, access.Action{}); !known {
			names := []string{access.TemplateOperator, access.TemplateObservability, access.TemplateViewer,
				access.TemplateKubernetes}
			for _, r := range c.API.Roles {
				names = append(names, r.Name)
			}
			near := ""
			if n := strict.Nearest(d.Role, names); n != "" {
				near = fmt.Sprintf("; did you mean %s?", n)
			}
			fault(at+".role", "%q is not a role; use one of api.roles or a built-in one (%s)%s",
				d.Role, strings.Join(names[:4], ", "), near)
		}
	}
}

// checkPublished checks the options of a published directory.
func (c *Config) checkPublished(i int, fault faultFunc) {
	d, at := c.Resources.Dir[i], fmt.Sprintf("resources.dir[%d].id", i)
	switch id := d.PublishID(); {
	case !d.Publish && d.ID != "":
		fault(at, "%q has no effect without publish: true; set it, or remove the id", d.ID)
	case !d.Publish:
	case len(id) > maxDirectoryID:
		fault(at, "is required: the path has %d bytes, and an id may have at most %d; set a short name, the same on all "+
			"nodes with this directory", len(id), maxDirectoryID)
	default:
		for j, o := range c.Resources.Dir[:i] {
			if o.Publish && o.PublishID() == id {
				fault(at, "%q is also the id of item [%d]; use different ids", id, j)
			}
		}
	}
}

// isBelow reports whether a path is inside a directory.
func isBelow(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// splitFaults records the errors of a joined error. Each begins with its field path.
func splitFaults(err error, fault faultFunc) {
	if err == nil {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		key, why, _ := strings.Cut(e.Error(), ": ")
		fault(key, "%s", why)
	}
}

// CheckKinds reports unknown kinds in api.roles.
func (c *Config) CheckKinds(known []string) (out strict.Faults) {
	for i, r := range c.API.Roles {
		for j, a := range r.Allow {
			for k, kind := range a.Kinds {
				if strings.Contains(kind, "*") || kind == access.KindAgent || slices.Contains(known, kind) {
					continue
				}
				hint := "known are " + strings.Join(known, ", ")
				if near := strict.Nearest(kind, known); near != "" {
					hint = "did you mean " + near + "?"
				}
				out = append(out, strict.Fault{Field: fmt.Sprintf("api.roles[%d].allow[%d].kinds[%d]", i, j, k),
					Reason: fmt.Sprintf("unknown kind %.64q; %s", kind, hint)})
			}
		}
	}
	return out
}

// podRun is the directory at which nearside inject mounts the directory of a pod.
const podRun = "/run/nearside"

// Warnings lists settings that are less secure than the default or have no effect.
func (c *Config) Warnings() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m := c.API.Socket.Mode; m&0o006 != 0 {
		add("api.socket.mode %#o lets every user of the node connect and read everything that api.roles does not restrict; "+
			"use 0660 for access by the group only", m)
	}
	if m := c.XDS.Socket.Mode; m&0o006 != 0 {
		add("xds.socket.mode %#o lets every user of the node connect, so only xds.access limits the configs that they get; "+
			"use 0660 for access by the group only", m)
	}
	if c.UI.Listen == "" && (c.UI.TLS.Cert != "" || len(c.UI.Hosts) > 0) {
		add("ui.listen is empty, so ui.tls and ui.hosts have no effect")
	}
	if c.Webhook.Listen == "" && (c.Webhook.TLS.Cert != "" || c.Webhook.TLS.Key != "" || c.Webhook.TLS.ClientCA != "") {
		add("webhook.listen is empty, so webhook.tls has no effect")
	}
	if (c.API.TCP != "" || c.UI.Listen != "") && c.API.TokenFile != "" && c.API.Roles == nil {
		add("anyone with the token of api.tokenFile may write all resources; use signed tokens (nearside token " +
			"create --api) with api.roles")
	}
	if c.XDS.Unpinned == "allow" && c.XDS.Access == nil {
		add("xds.unpinned is allow: every Envoy in the group of xds.socket gets the config and keys of every " +
			"Dataplane that is not pinned; add the label nearside.io/user to the Dataplanes, and set xds.unpinned to refuse")
	}
	if c.XDS.Access != nil && len(c.XDS.Access) == 0 && c.XDS.Pods == "" {
		add("xds.access is [], so no Envoy gets a config; add rules for the users of your Envoys")
	}
	if c.XDS.Pods != "" && c.Paths.Run != podRun {
		add("xds.pods: injected pods mount their directory at %s, but the configs of their Envoys name FIFOs and sockets in "+
			"paths.run, which is %s; set paths.run to %s", podRun, c.Paths.Run, podRun)
	}
	for i, r := range c.XDS.Access {
		if r.Pod != "" && c.XDS.Pods == "" {
			add("xds.access[%d] is for pods, and has no effect because xds.pods is empty; set xds.pods to pods", i)
		}
		if r.Matcher == (access.Matcher{User: "root"}) || r.Matcher == (access.Matcher{User: "0"}) {
			continue
		}
		if r.Pod == "" && slices.ContainsFunc(r.Nodes, everything) {
			add("xds.access[%d] lets peers with %s connect as any proxy; list their node ids", i, r.Matcher)
		}
		if r.Bring && slices.ContainsFunc(r.Services, everything) {
			add("xds.access[%d] lets peers with %s bring a Dataplane of any service and so receive its traffic; "+
				"list their services", i, r.Matcher)
		}
	}
	for i, r := range c.AccessLog.Receivers {
		if !strings.HasPrefix(r.Address, unixPrefix) && !isLoopback(r.Address) && r.TLS.ClientCA == "" {
			add("accessLog.receivers[%d]: every host that reaches %s may write lines to %s; use a loopback address, "+
				"a unix socket, or tls with clientCA", i, r.Address, r.File)
		} else if strings.HasPrefix(r.Address, unixPrefix) && r.Mode&0o002 != 0 {
			add("accessLog.receivers[%d]: mode %#o lets every user of the node write lines to %s; "+
				"use 0660 for access by the group only", i, r.Mode, r.File)
		}
	}
	if c.DNS.Listen != "" &&
		!slices.ContainsFunc(c.DNS.Addrs(), func(a netip.AddrPort) bool { return a.Addr().IsLoopback() }) {
		add("dns.listen: every host that reaches %s may query all names of the meshes and use the agent as a resolver; "+
			"use a loopback address, or restrict access with a firewall", c.DNS.Listen)
	}
	if c.Gossip.Insecure && c.Gossip.Bind != "" {
		add("gossip.insecure is true: every host that reaches %s may change all resources of the meshes; "+
			"use gossip.keyringFile", c.Gossip.Bind)
	}
	for i, d := range c.Resources.Dir {
		if d.Publish && c.Gossip.Bind == "" {
			add("resources.dir[%d].publish has no effect without gossip.bind: the resources are used only on this node", i)
		}
	}
	if m := c.Metrics; m.Listen != "" && !isLoopback(m.Listen) {
		add("metrics.listen: the token, which only gives access to metrics, crosses the network in plain text; "+
			"restrict access to %s to the hosts that collect metrics", m.Listen)
	} else if m.Listen == "" && m.TokenFile != "" {
		add("metrics.listen is empty, so metrics.tokenFile has no effect")
	}
	if c.API.Roles != nil && len(c.API.Roles) == 0 {
		add("api.roles is [], so only root and the user of the agent may read and write; add roles for other users")
	}
	switch {
	case c.XDS.TCP == "" && (c.XDS.Insecure || c.XDS.TLS.Cert != ""):
		add("xds.tcp is empty, so xds.insecure and xds.tls have no effect")
	case c.XDS.Insecure && c.XDS.TCP != "":
		add("xds.insecure is true: every host that reaches xds.tcp gets the config, without private keys, of any proxy " +
			"whose Dataplane is from a file or the API; use tokens or client certificates")
	case c.XDS.TCP != "" && c.XDS.TLS.Cert == "":
		add("xds.tcp accepts tokens in plain text and serves no private keys; set xds.tls")
	}
	if p, err := access.NewProxies(access.ProxyOptions{Rules: c.XDS.Access, GID: -1}); err == nil {
		out = append(out, p.Missing()...)
	}
	if r, err := access.NewRoles(access.RoleOptions{Roles: c.API.Roles, GID: -1}); err == nil {
		out = append(out, r.Missing()...)
	}
	return out
}

// everything reports whether a pattern matches any text.
func everything(pattern string) bool { return pattern != "" && strings.Trim(pattern, "*") == "" }

// isLoopback reports whether an address host:port has a loopback IP. Host names do not count,
// because they can change.
func isLoopback(s string) bool {
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// checkRanges checks the virtual address ranges for conflicts. A missing family has its default
// range.
func (c *Config) checkRanges(fault func(key, format string, args ...any)) {
	type keyed struct {
		key string
		netip.Prefix
	}
	var all []keyed
	for _, f := range c.fields() {
		list, ok := f.at.Interface().([]string)
		if !ok || f.tag.Get("check") != "range" {
			continue
		}
		var own []netip.Prefix
		for i, s := range append(slices.Clone(list), strings.Split(f.tag.Get("default"), ",")...) {
			p, err := netip.ParsePrefix(s)
			same := slices.IndexFunc(own, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() })
			switch {
			case err != nil:
			case same < 0:
				own = append(own, p)
				for _, o := range all {
					if o.Overlaps(p) {
						fault(f.path, "%s overlaps %s of %s; use separate ranges for each kind of service", p, o.Prefix, o.key)
					}
				}
			case i < len(list):
				fault(f.path, "%s and %s have the same address family; use one range per family", own[same], p)
			}
		}
		for _, p := range own {
			all = append(all, keyed{f.path, p})
		}
	}
}

// checkGossip checks that a pool is protected by keys unless it is explicitly insecure.
func (c *Config) checkGossip(fault faultFunc) {
	g := &c.Gossip
	switch {
	case g.Bind == "" && len(g.Join) > 0:
		fault("gossip.join", "is set but gossip.bind is empty; set gossip.bind to an address, such as :7946")
	case g.Bind == "":
	case g.KeyringFile == "" && !g.Insecure:
		fault("gossip.keyringFile", "is required: otherwise any host that reaches gossip.bind could be a member; "+
			"set a file with a key (create one with nearside keyring generate), the same on all nodes")
	case g.KeyringFile != "" && g.Insecure:
		fault("gossip.insecure", "contradicts gossip.keyringFile; set gossip.insecure to false")
	}
	for _, x := range []struct{ key, value string }{
		{"gossip.admit", g.Admit}, {"trust.file", c.Trust.File}, {"trust.mode", strings.TrimPrefix(c.Trust.Mode, "off")},
	} {
		if x.value != "" && g.Bind == "" {
			fault(x.key, "is set but gossip.bind is empty, so there is no pool to trust; set gossip.bind, or remove %s", x.key)
		}
	}
	for key, text := range map[string]string{"gossip.bind": g.Bind, "gossip.advertise": g.Advertise} {
		if host, _, err := net.SplitHostPort(text); text != "" && err == nil && host != "" && net.ParseIP(host) == nil {
			fault(key, "%.64q is not an IP address; use one, or :port for all addresses", host)
		}
	}
}
