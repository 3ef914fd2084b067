package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func interceptCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "intercept",
		Short: "Redirect DNS to the agent, and TCP to Envoy",
		Example: `  nearside intercept install --dry-run
  nearside intercept install
  nearside intercept status
  nearside intercept uninstall`,
	}, interceptInstallCommand(env), interceptUninstallCommand(env), interceptStatusCommand(env))
}

// netnsFlags select a network namespace and the run directory of the agent.
type netnsFlags struct {
	netns  string
	pid    int
	runDir string
}

func (p *netnsFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.netns, "netns", "",
		"network namespace: a path, or a name of ip netns (default: the one of this command)")
	f.IntVar(&p.pid, "pid", 0, "use the network namespace of this process")
	p.addRunDir(cmd)
}

func (p *netnsFlags) addRunDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.runDir, "run-dir", "",
		"run directory of the agent, paths.run (default: the directory of the agent's socket)")
	_ = cmd.MarkFlagDirname("run-dir") // fails only for an undefined flag
}

// records returns the directory of the installation records.
func (p *netnsFlags) records(env *command.Env) string {
	return filepath.Join(cmp.Or(p.runDir, filepath.Dir(env.Socket())),
		intercept.DirName)
}

func (p *netnsFlags) open() (*intercept.Namespace, error) {
	path := intercept.NamespacePath(p.netns)
	switch {
	case p.pid != 0 && path != "":
		return nil, command.Usagef("--netns and --pid both name a network namespace; give one of them")
	case p.pid < 0:
		return nil, command.Usagef("--pid is %d; give the ID of a process", p.pid)
	case p.pid > 0:
		path = fmt.Sprintf("/proc/%d/ns/net", p.pid)
	case path != "" && !filepath.IsAbs(path):
		return nil, command.Usagef("--netns %s is a relative path; give an absolute one, "+
			"because the agent has another working directory", path)
	}
	return intercept.OpenNamespace(path)
}

// interceptFlags select the redirected connections.
type interceptFlags struct {
	netnsFlags
	spec                            intercept.Spec
	dns, dryRun                     bool
	dnsPort                         uint16
	users, excludeUsers, envoyUsers []string
	cgroups                         []string
	outPorts, inPorts               []uint
	outCIDRs, inCIDRs, virtualCIDRs []string
	wait                            time.Duration
}

func interceptInstallCommand(env *command.Env) *cobra.Command {
	var f interceptFlags
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the redirection in a network namespace",
		Long: `Installs the nftables table "inet nearside", replaces an existing one, and records the installation
for the agent. UDP and TCP traffic to port 53 then goes to the agent's resolver, over IPv4 and IPv6,
for all processes of the network namespace, or only for some users (--user) and cgroups (--cgroup).
The command changes nothing else, and writes only the record.

The agent keeps the redirection alive. Without an agent, names go to the real servers after 3
seconds. In the network namespace of a pod, the agent answers on sockets that it opens there.

With --outbound and --inbound, TCP traffic is also redirected to an Envoy. This redirection remains
when the Envoy or the agent stops.

The command needs root, or the capabilities CAP_NET_ADMIN and, for --netns and --pid, CAP_SYS_ADMIN.
The agent needs the same capabilities.

The exit code is 3 if DNS is not redirected within --wait, for example because no agent runs; the
redirection starts with the agent. It is 77 if a capability is missing.`,
		Example: `  nearside intercept install --dry-run
  nearside intercept install --user app --user 1001
  nearside intercept install --netns /run/netns/pod7
  nearside intercept install --cgroup system.slice/shop.service
  nearside intercept install --pid 4711 --outbound --inbound \
    --envoy-user 5678 --exclude-inbound-port 22`,
		Args: command.Args(0, 0, "no arguments: flags select the redirected connections"),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.dns, "dns", true, "redirect DNS")
	flags.Uint16Var(&f.dnsPort, "dns-port", intercept.DefaultDNSPort, "port of the agent's resolver, as in dns.listen")
	flags.StringSliceVar(&f.users, "user", nil,
		"user whose DNS and outbound TCP traffic is redirected, by name or UID; repeatable (default: all)")
	flags.StringSliceVar(&f.cgroups, "cgroup", nil, "cgroup (version 2) whose DNS and outbound TCP traffic is "+
		"redirected, also after it is recreated; repeatable")
	flags.StringSliceVar(&f.excludeUsers, "exclude-user", nil, "user whose traffic is not redirected; repeatable")
	flags.Uint16Var(&f.spec.Outbound, "outbound", 0, "redirect outbound TCP connections to this port of Envoy")
	flags.Uint16Var(&f.spec.Virtual, "outbound-virtual", 0,
		"redirect outbound TCP connections to virtual addresses to this port of Envoy")
	flags.Lookup("outbound-virtual").NoOptDefVal = fmt.Sprint(intercept.DefaultVirtualPort)
	flags.StringSliceVar(&f.virtualCIDRs, "virtual-cidr", nil,
		"range of virtual addresses, as in vips.*; repeatable (default: the defaults of vips.*)")
	flags.Uint16Var(&f.spec.Inbound, "inbound", 0, "redirect inbound TCP connections to this port of Envoy")
	flags.Lookup("outbound").NoOptDefVal, flags.Lookup("inbound").NoOptDefVal = fmt.Sprint(intercept.DefaultOutboundPort),
		fmt.Sprint(intercept.DefaultInboundPort)
	flags.StringSliceVar(&f.envoyUsers, "envoy-user", nil,
		"user of Envoy, whose connections are not redirected; required with --outbound")
	flags.UintSliceVar(&f.outPorts, "exclude-outbound-port", nil,
		"port of outbound connections that are not redirected; repeatable")
	flags.UintSliceVar(&f.inPorts, "exclude-inbound-port", nil,
		"port of inbound connections that are not redirected; repeatable")
	flags.StringSliceVar(&f.outCIDRs, "exclude-outbound-cidr", nil,
		"destination network that is not redirected; repeatable")
	flags.StringSliceVar(&f.inCIDRs, "exclude-inbound-cidr", nil,
		"source network that is not redirected; repeatable")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the ruleset in nft syntax, and install nothing")
	flags.DurationVar(&f.wait, "wait", 3*time.Second, "time to wait until DNS is redirected; 0 does not wait")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.install(cmd.Context(), env, *format) }
	return cmd
}

// resolve fills the spec from the flags.
func (f *interceptFlags) resolve() error {
	if f.dns {
		f.spec.DNSPort = f.dnsPort
		if f.dnsPort == 0 {
			return command.Usagef("--dns-port is 0; give 1 to 65535, or --dns=false")
		}
	}
	for _, err := range []error{
		parsed("--user", f.users, userNumber, &f.spec.Users),
		parsed("--exclude-user", f.excludeUsers, userNumber, &f.spec.ExcludeUsers),
		parsed("--envoy-user", f.envoyUsers, userNumber, &f.spec.EnvoyUsers),
		parsed("--exclude-outbound-port", f.outPorts, portNumber, &f.spec.ExcludeOutboundPorts),
		parsed("--exclude-inbound-port", f.inPorts, portNumber, &f.spec.ExcludeInboundPorts),
		parsed("--exclude-outbound-cidr", f.outCIDRs, network, &f.spec.ExcludeOutboundCIDRs),
		parsed("--exclude-inbound-cidr", f.inCIDRs, network, &f.spec.ExcludeInboundCIDRs),
		parsed("--virtual-cidr", f.virtualCIDRs, network, &f.spec.VirtualCIDRs),
	} {
		if err != nil {
			return err
		}
	}
	if f.spec.Virtual != 0 && len(f.spec.VirtualCIDRs) == 0 {
		f.spec.VirtualCIDRs = virtualip.DefaultRanges().Prefixes()
	}
	for _, c := range f.cgroups {
		path, err := intercept.CgroupPath(c)
		if err != nil {
			return err
		}
		f.spec.Cgroups = append(f.spec.Cgroups, path)
	}
	f.spec.Normalize()
	if err := f.spec.Validate(); err != nil {
		return command.Usagef("%w", err)
	}
	return nil
}

// parsed parses the values of a flag and appends them to *to.
func parsed[T, U any](flag string, values []T, parse func(T) (U, error), to *[]U) error {
	for _, v := range values {
		x, err := parse(v)
		if err != nil {
			return command.Usagef("%s: %w", flag, err)
		}
		*to = append(*to, x)
	}
	return nil
}

func portNumber(n uint) (uint16, error) {
	if n == 0 || n > 65535 {
		return 0, fmt.Errorf("%d is not a port; give 1 to 65535", n)
	}
	return uint16(n), nil
}

func network(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a network; use the form 10.0.0.0/8 or fd00::/8", s)
	}
	return p, nil
}

func userNumber(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n < 1<<32-1 {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no user %q; give the name of a user, or a UID", name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// planned is the document that --dry-run prints.
type planned struct {
	Netns string          `json:"netns,omitempty"`
	Spec  *intercept.Spec `json:"spec"`
	Notes []string        `json:"notes,omitempty"`
	NFT   string          `json:"nft"` // for nft -f
}

func (f *interceptFlags) install(ctx context.Context, env *command.Env, format string) error {
	if err := f.resolve(); err != nil {
		return err
	}
	if f.dryRun {
		plan, err := intercept.Plan(&f.spec)
		if err != nil {
			return err
		}
		return command.Show(env, format, func(w io.Writer, p *planned) { text.Printf(w, "%s", text.Layout(p.NFT)) })(
			&planned{f.netns, &f.spec, plan.Notes, plan.Ruleset.String()}, nil)
	}
	n, err := f.open()
	if err != nil {
		return err
	}
	defer n.Close()
	if err := f.requireSSHExclusion(n); err != nil {
		return err
	}
	dir := f.records(env)
	done, err := intercept.Install(n, &f.spec, dir)
	if err != nil {
		return err
	}
	for _, note := range done.Notes {
		text.Printf(env.Stderr, "note: %s\n", note)
	}
	r, err := f.await(ctx, n, dir)
	err = command.Show(env, format, func(w io.Writer, r *intercept.Report) {
		printReports(w, env.Stderr, &reports{[]*intercept.Report{r}})
	})(r, err)
	switch {
	case err != nil || r.Good():
		return err
	case r.State == intercept.StateBroken:
		return command.Silent(command.ExitNo)
	case f.wait > 0:
		return command.Silent(command.ExitTimeout)
	}
	return nil
}

// requireSSHExclusion refuses to redirect all inbound connections of the host, which would cut off
// remote shells.
func (f *interceptFlags) requireSSHExclusion(n *intercept.Namespace) error {
	if f.spec.Inbound == 0 || len(f.spec.ExcludeInboundPorts) > 0 {
		return nil
	}
	own := n.Path == "" // may be the host's namespace
	if host, err := intercept.OpenNamespace("/proc/1/ns/net"); err == nil {
		own = own || host.Inode == n.Inode
		host.Close()
	}
	if own {
		return command.Usagef("--inbound redirects all inbound connections of this host, including remote shells; exclude " +
			"the port of your shell, such as --exclude-inbound-port 22, or select a network namespace with --netns or --pid")
	}
	return nil
}

// await polls until DNS is redirected, the redirection is broken, or f.wait has passed.
func (f *interceptFlags) await(ctx context.Context, n *intercept.Namespace, dir string) (*intercept.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		r, err := intercept.Inspect(context.WithoutCancel(ctx), n, dir)
		if err != nil || r.Good() || r.State == intercept.StateBroken {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-t.C:
		}
	}
}
