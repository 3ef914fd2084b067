package policy

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Plugin is the export of one folder below agent/compute/kinds: kinds, and their effect on a proxy.
type Plugin struct {
	// Kinds are the kinds of targetRef policies.
	Kinds []resource.Descriptor
	// Legacy are the kinds that they replace.
	Legacy []LegacyKind
	// Refers are the other kinds that the policies refer to. A change of such a resource counts as
	// a change of every policy of the plugin.
	Refers []resource.Descriptor
	// Admits, when set, means that the from rules of Kinds define which clients an inbound admits.
	// It reports whether a client with this merged conf is admitted.
	Admits func(resource.Conf) bool
	// Decide, when set, evaluates the spec.rules confs of one inbound for a client. It returns the
	// decision and the index of the deciding conf. An inbound with rules ignores from. For a
	// destination outside the mesh, Denied overrides Admits, and Admitted applies unless from denies
	// the client.
	Decide func(confs []resource.Conf, c Client) (Decision, int)
	// Outbound, when set, is called for every outbound of the proxy before it has filter chains. It
	// either adds chains to o.Listener, with clusters from c.Host.Destination, and returns true, or
	// does nothing and returns false. After false, the next plugin is called; if all return false,
	// the outbound leads to its service.
	Outbound func(c *Context, o *Outbound) bool
	// Reads declares how much of the dataplane Outbound and Apply of Kinds and Legacy read. Proxies
	// for which this is equal share parts of a config.
	Reads Reads
	// ByName is true if Apply matches parts of the draft by names, which may contain addresses of the
	// proxy, so that equal policies may have other effects on proxies that are equal otherwise.
	ByName bool
	// Destinations, when set, lists the destinations of a policy of Kinds other than the outbounds'
	// own services. It must be complete, because zone proxies are configured from it.
	Destinations func(p *resource.Resource) []BackendRef
	// TLS, when set, returns the TLS versions and ciphers that the policies of Kinds, in order of
	// increasing precedence, set for all connections between proxies.
	TLS func([]*resource.Resource) mesh.TLSRange
	// Apply, when set, edits a draft. A large config is built in parts: Apply is called for each
	// part, with only its listeners and clusters.
	Apply func(c *Context, d *draft.Draft)
	// Exits, when set, lists the destinations that a policy of Kinds permits through zone egresses,
	// for meshes that use them for external traffic.
	Exits func(p *resource.Resource) []Exit
	// Domains, when set, lists names outside the mesh to which a policy of Kinds assigns virtual
	// addresses. Selected proxies accept connections at these addresses. The permits of InForce
	// list the names that a proxy actually serves.
	Domains func(p *resource.Resource) []string
	// Guard, when set, prepends RBAC filters to a chain that leads to a destination outside the
	// mesh. The filters enforce Kinds and Legacy by the SPIFFE IDs of clients, and deny clients
	// that no policy admits.
	Guard func(o *Outside, l *draft.Listener, ch *draft.Chain)
	// InForce, when set, returns the proxy-wide effect of Kinds, or nil if there is none. c has
	// View, Proxy, Dataplane, and Rules.
	InForce func(c *Context) *InForce

	// The fields below are for explanations of connections and requests, which name the policies
	// behind each step.

	// Shapes are the levels that the rules of Kinds and Legacy affect. Filters are the names of
	// Envoy filters that they produce.
	Shapes  []match.Level
	Filters []string
	// Effects are the effects on connections and requests of the rules of Kinds and Legacy, in
	// addition to those of Filters.
	Effects []match.EffectKind
	// Causes, when set, lists the fields of Kinds and Legacy that cause a step, if Shapes and
	// Filters do not determine them.
	Causes func(f *Flow) []FieldRef
	// Outside, when set, lists the fields of Kinds that decide on a destination outside the mesh.
	Outside func(f *Flow) []FieldRef
	// Suggest, when set, returns new or changed policies of Kinds, the smallest change first. Each
	// of them must be sufficient to permit a denied flow.
	Suggest func(d *Denial) []*resource.Resource
}

// Reads is how much of a dataplane a plugin reads, in addition to the rules.
type Reads int

// Levels of Reads, in increasing order.
const (
	ReadsRules Reads = iota
	ReadsTags
	ReadsDataplane
)

// Client is the client of an inbound, as rules see it.
type Client struct {
	IDs        []string // the SPIFFE IDs in its certificate
	ServerName string   // that it requests, in lower case; "" for none
}

// Decision is the decision of rules about a client.
type Decision int

// Decisions.
const (
	Undecided Decision = iota // no rule matches the client
	Admitted
	Denied
)

// LegacyKind is a kind of source-destination policies (legacy).
type LegacyKind struct {
	resource.Descriptor
	// ReplacedBy are kinds that supersede the legacy kind: one policy of them that selects a proxy
	// disables the legacy kind on that proxy. If it is empty, the plugin decides.
	ReplacedBy []string
	// Inbound is true for kinds of inbound policies, false for kinds of outbound policies. Only the
	// strongest policy of an inbound applies, unless AllApply is true. Explanations depend on both.
	Inbound, AllApply bool
	// SupersededBy, when set, is for kinds of outbound policies whose plugin decides when they are
	// superseded. It returns the targetRef policy that overrides a field of their conf, given by
	// its JSON path, for the connections to a destination, or nil. Explanations depend on it.
	SupersededBy func(r *Rules, s draft.Service, path string) *resource.Resource
	// Destinations, when set, lists the destinations of a policy for an outbound with these tags,
	// as Plugin.Destinations does.
	Destinations func(p *resource.Resource, outbound map[string]string) []BackendRef
	// Outbound and Apply, when set, work like those of the plugin. Outbound is called after the
	// plugin's, and Apply before it, so the plugin takes precedence.
	Outbound func(c *Context, o *Outbound) bool
	Apply    func(c *Context, d *draft.Draft)
	// Guard, when set, guards a chain to a destination outside the mesh. Plugin.Guard calls it. It
	// returns false if no policy of the kind selects the destination.
	Guard func(o *Outside, l *draft.Listener, ch *draft.Chain) bool
	// OutboundToo, when set, is for kinds of inbound policies that also apply to outbounds whose
	// server is not in the mesh. It reports whether they apply to a service. Explanations depend on
	// it.
	OutboundToo func(s *mesh.Service) bool
	// Egress, when set, applies the policies of destinations outside the mesh to an egress's filter
	// chain that leads to them. warn reports problems to the owner of a policy.
	Egress func(to []*Outside, ch *draft.Chain, warn Warn)
	// Migrate, when set, returns targetRef policies equivalent to those of the legacy kind.
	Migrate func(in *MigrateInput) Migration
}

// Warn reports a problem to the owner of a resource.
type Warn func(k resource.Key, format string, args ...any)

// Outbound is an address that the workload may dial, while its listener is being built.
type Outbound struct {
	Service  draft.Service
	Tags     map[string]string // of the outbound, nil for service resources; must not be modified
	Listener *draft.Listener   // has no chains yet
	// Headers are set on the HTTP connection managers of the listener. They carry the proxy's tags.
	Headers *draft.Headers
	// Self adds the cluster of the service itself, restricted to the tags of the outbound. from is
	// the policy that refers to it.
	Self func(from *resource.Resource) Destination
}

// BackendRef names a destination of a route, as policies write it.
type BackendRef = mesh.BackendRef

// Destination is the target of a reference.
type Destination struct {
	Cluster string // name of the cluster
	Service draft.Service
}

// Host is the interface of the generator to plugins.
type Host interface {
	// Destination adds the cluster and endpoints of a reference to the config and returns the
	// cluster. from is the policy that contains the reference; its namespace is the default.
	// Destination returns false and records a warning if the mesh has no such service.
	Destination(from *resource.Resource, ref BackendRef) (Destination, bool)
	// Lookup returns the service of a reference and adds nothing. from and the false result are as
	// for Destination.
	Lookup(from *resource.Resource, ref BackendRef) (draft.Service, bool)
	// Claim reserves the name of a resource that a plugin adds. It returns true on the first call
	// within a part of a config, and false afterwards. All parts must add the same resource under a
	// name.
	Claim(typeURL, name string) bool
	// Localities sets the endpoints that the proxy prefers for an EDS cluster; nil for no
	// preference. The last call for a cluster applies. Without a call, the proxy prefers its own
	// zone if the mesh or the kind of service requires it.
	Localities(cluster string, l *Localities)
	// Egress routes a cluster through the zone egresses, with mTLS and the server name by which
	// they identify the destination. The mesh must use egresses for external traffic.
	Egress(c *draft.Cluster, serverName string)
	// EnvoyFrom reports whether the config is for an Envoy that is known to have at least this
	// version.
	EnvoyFrom(major, minor uint32) bool
	// Warn reports a problem to the owner of a resource. Equal warnings are recorded once.
	Warn(k resource.Key, format string, args ...any)
}

// AdminCluster is the bootstrap cluster of Envoy's own admin interface. The agent does not know its
// address.
const AdminCluster = "nearside-admin"

// Context is a plugin's view of the proxy whose draft it edits.
type Context struct {
	View  *mesh.View
	Rules *Rules // of this proxy, for all kinds
	Host  Host
	Paths *logpaths.Rules // of the agent's directories and log files
	// Last is true for the last part of the draft, which exists even if the proxy has no outbounds.
	// Plugins add resources that occur once to it.
	Last bool

	proxy     *resource.Resource
	dataplane *resource.Dataplane
}

// WithDataplane sets the dataplane and returns the context.
func (c *Context) WithDataplane(r *resource.Resource, spec *resource.Dataplane) *Context {
	c.proxy, c.dataplane = r, spec
	return c
}

// Proxy returns the dataplane; see [Plugin.Reads].
func (c *Context) Proxy() *resource.Resource { return c.proxy }

// Dataplane returns the spec of the dataplane; see [Plugin.Reads].
func (c *Context) Dataplane() *resource.Dataplane { return c.dataplane }
