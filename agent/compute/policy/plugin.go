package policy

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Plugin is what one folder below agent/compute/kinds exports: kinds, and their effect on a proxy.
type Plugin struct {
	// Kinds are those of targetRef policies.
	Kinds []resource.Descriptor
	// Legacy are the kinds that they replace.
	Legacy []LegacyKind
	// Refers are further kinds that the policies refer to. A change of one of them is a change of
	// every policy of the plugin.
	Refers []resource.Descriptor
	// Admits, when set, says that the from rules of Kinds decide who may come in, and whether a client
	// with this merged conf may.
	Admits func(resource.Conf) bool
	// Decide, when set, says what confs of spec.rules that are about one inbound say of a client with
	// these SPIFFE IDs in its certificate, and which of them decides. Who is denied stays out,
	// whatever Admits says of from, and who is admitted comes in unless from denies it.
	Decide func(confs []resource.Conf, ids []string) (Decision, int)
	// Outbound, when set, is asked for every outbound of the proxy before it has filter chains. It
	// adds them to o.Listener, with clusters from c.Host.Destination, and returns true; or it returns
	// false and does nothing: then the next plugin is asked, and at last the outbound leads to its
	// service.
	Outbound func(c *Context, o *Outbound) bool
	// Reads is what Outbound and Apply of Kinds and Legacy read of the dataplane when they make
	// outbounds: parts of a config are shared by proxies that have the same of it.
	Reads Reads
	// Destinations, when set, lists what a policy of Kinds leads outbounds to beside their own
	// services, and nothing else becomes a destination of one: zone proxies are made for it.
	Destinations func(p *resource.Resource) []BackendRef
	// Apply, when set, edits a draft. A large config is made in parts: Apply is called for each of
	// them, with the listeners and clusters of that part alone.
	Apply func(c *Context, d *draft.Draft)
	// Exits, when set, lists what a policy of Kinds lets out through the egresses of the zone, where
	// the mesh leaves through them.
	Exits func(p *resource.Resource) []Exit
	// Domains, when set, lists names outside of the mesh that a policy of Kinds gives virtual
	// addresses: the proxies that it selects take connections to them there. Those that one does take
	// are in the permits of InForce.
	Domains func(p *resource.Resource) []string
	// Guard, when set, puts what Kinds and Legacy say about who may use a destination outside of the
	// mesh in front of a chain that leads there, as filters of RBAC whose principals are names in
	// certificates. It denies whom nothing admits.
	Guard func(o *Outside, l *draft.Listener, ch *draft.Chain)
	// InForce, when set, says what of Kinds is in force for a proxy as a whole; nil where that does
	// not concern it. c has View, Proxy, Dataplane and Rules.
	InForce func(c *Context) *InForce
	// NoEffect, when set, says what of a policy of Kinds or Legacy that selects a proxy has no effect
	// on it, beside what other policies override. The warnings say why. c has View, Proxy, Dataplane,
	// Rules and Warnings.
	NoEffect func(c *Context, p *resource.Resource) []NoEffect

	// The fields below are for explanations of connections and requests, which name the policies
	// behind each step.

	// Shapes are the steps that the rules of Kinds and Legacy shape, and Filters the names of filters
	// of Envoy that are made of them.
	Shapes  []match.Level
	Filters []string
	// Effects are the kinds of effects on connections and requests that the rules of Kinds and Legacy
	// shape, beside those of Filters.
	Effects []match.EffectKind
	// Behind, when set, lists what of Kinds and Legacy the step of a flow follows from, where Shapes
	// and Filters do not tell.
	Behind func(f *Flow) []Written
	// Outside, when set, lists what of Kinds decides about a destination outside of the mesh.
	Outside func(f *Flow) []Written
	// Suggest, when set, returns policies of Kinds, new ones or changed ones, of which one alone may
	// end a denial, the smallest change first. Nothing is suggested that does not.
	Suggest func(d *Denial) []*resource.Resource
}

// Reads is what a plugin reads of a dataplane, beside what the rules say about it.
type Reads int

// What plugins read, from little to all.
const (
	ReadsRules Reads = iota
	ReadsTags
	ReadsDataplane
)

// Decision is what entries of rules say of a client.
type Decision int

// The decisions.
const (
	Unspoken Decision = iota // none of them is about the client
	Admitted
	Denied
)

// NoEffect is a field of a policy that has no effect on a proxy.
type NoEffect struct {
	Field string // its path in the document, as in spec.default.appendMatch, with all below it; "" for the whole policy
	Part  bool   // of a list: some of its items have an effect
}

// LegacyKind is a kind of source-destination policies (legacy).
type LegacyKind struct {
	resource.Descriptor
	// ReplacedBy are the kinds of which a single policy that selects the proxy ends the effect of the
	// legacy kind on that proxy. Empty: the plugin decides.
	ReplacedBy []string
	// Inbound is true for kinds of inbound policies, false for kinds of outbound policies. Of the
	// policies about one inbound the strongest applies alone, unless AllApply is true. Explanations
	// depend on both.
	Inbound, AllApply bool
	// SupersededBy, when set, is for kinds of outbound policies whose plugin decides what they still
	// do: it returns the targetRef policy that keeps a field of their conf, by its path in JSON, from
	// acting on the connections to a destination. Nil for none. Explanations depend on it.
	SupersededBy func(r *Rules, s draft.Service, path string) *resource.Resource
	// Destinations, when set, lists what a policy leads an outbound with these tags to, as that of a
	// plugin does.
	Destinations func(p *resource.Resource, outbound map[string]string) []BackendRef
	// Outbound and Apply, when set, are as those of the plugin. Outbound is called after the plugin's,
	// Apply before it: what the plugin does takes precedence.
	Outbound func(c *Context, o *Outbound) bool
	Apply    func(c *Context, d *draft.Draft)
	// Guard, when set, guards a chain that leads outside of the mesh as that of a plugin does, which
	// calls it; false where no policy of the kind is about the destination.
	Guard func(o *Outside, l *draft.Listener, ch *draft.Chain) bool
	// Leaving, when set, is for kinds of inbound policies that also act where connections leave, as
	// nothing of the mesh receives them: it reports whether they do for a service. Explanations depend
	// on it.
	Leaving func(s *mesh.Service) bool
	// Egress, when set, edits a chain of an egress by what the policies say of the destinations
	// outside of the mesh that it leads to. warn notes something that the owner of a policy should
	// know.
	Egress func(to []*Outside, ch *draft.Chain, warn Warn)
	// Migrate, when set, makes targetRef policies that say the same as those of the legacy kind.
	Migrate func(in *MigrateInput) Migration
}

// Warn notes something that the owner of a resource should know.
type Warn func(k resource.Key, format string, args ...any)

// Outbound is one address that the workload may dial, while its listener is made.
type Outbound struct {
	Service  draft.Service
	Tags     map[string]string // of the outbound as written, nil for service resources; must not be changed
	Listener *draft.Listener   // has no chains yet
	// Headers are to be set on the HTTP connection managers of the listener: they carry the tags of
	// the proxy.
	Headers *draft.Headers
	// Self adds the cluster of the service itself, restricted to the tags of the outbound. from is the
	// policy that leads there.
	Self func(from *resource.Resource) Destination
}

// BackendRef names a destination of a route, as policies write it.
type BackendRef = mesh.BackendRef

// Destination is what a reference leads to.
type Destination struct {
	Cluster string // name of the cluster
	Service draft.Service
}

// Host is what the generator does for plugins.
type Host interface {
	// Destination returns the cluster for a reference and sees to it that the cluster and its
	// endpoints are part of the config. from is the policy that holds the reference; its namespace is
	// the default. False when the mesh has no such service, and then a warning has been noted.
	Destination(from *resource.Resource, ref BackendRef) (Destination, bool)
	// Lookup returns the service that a reference leads to and adds nothing. from is as for
	// Destination. False when the mesh has no such service, and then a warning has been noted.
	Lookup(from *resource.Resource, ref BackendRef) (draft.Service, bool)
	// Claim takes the name of a resource that a plugin adds by itself: true the first time for a
	// part of a config, and false afterwards. What several parts add of a name is the same.
	Claim(typeURL, name string) bool
	// Localities says where the proxy prefers the endpoints of an EDS cluster to be; nil: anywhere.
	// The last call for a cluster counts. Without one it is the zone of the proxy where the mesh or
	// the kind of service asks for that.
	Localities(cluster string, l *Localities)
	// Egress makes a cluster lead to the egresses of the zone, with mutual TLS and a server name by
	// which they know what is asked for. The mesh must leave through them.
	Egress(c *draft.Cluster, serverName string)
	// EnvoyFrom reports whether the config is for an Envoy that is known to be of a version or of a
	// newer one.
	EnvoyFrom(major, minor uint32) bool
	// Warn notes something that the owner of a resource should know. Equal warnings are kept once.
	Warn(k resource.Key, format string, args ...any)
}

// AdminCluster is the cluster of the bootstrap that leads to the admin interface of its Envoy. The
// agent does not know where that is.
const AdminCluster = "nearside-admin"

// Context is what a plugin sees of the proxy whose draft it edits.
type Context struct {
	View   *mesh.View
	Rules  *Rules // of this proxy, for all kinds
	Host   Host
	RunDir string // the agent's run directory: FIFOs and sockets that an Envoy opens lie there
	// Warnings are those of the config that was made; nil while it is made.
	Warnings []mesh.Warning
	// Last is true for the last part of the draft, which is there even when the proxy has no
	// outbounds. What a plugin adds once belongs to it.
	Last bool

	proxy     *resource.Resource
	dataplane *resource.Dataplane
}

// Of sets the dataplane, and returns the context.
func (c *Context) Of(r *resource.Resource, spec *resource.Dataplane) *Context {
	c.proxy, c.dataplane = r, spec
	return c
}

// Proxy returns the dataplane; see [Plugin.Reads].
func (c *Context) Proxy() *resource.Resource { return c.proxy }

// Dataplane returns the spec of the dataplane; see [Plugin.Reads].
func (c *Context) Dataplane() *resource.Dataplane { return c.dataplane }
