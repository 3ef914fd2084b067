package resource

// Core returns the descriptors of the kinds that make up a mesh before any policy acts on it. Plurals and short names
// are those of Kuma's API and kumactl.
func Core() []Descriptor {
	return []Descriptor{
		{Kind: "Mesh", Plural: "meshes", Scope: ScopeGlobal, SpecAtTop: true, New: func() Spec { return new(Mesh) }},
		{Kind: "Dataplane", Plural: "dataplanes", Short: "dp", SpecAtTop: true, New: func() Spec { return new(Dataplane) }},
		{Kind: "ExternalService", Plural: "external-services", SpecAtTop: true, New: func() Spec { return new(ExternalService) }},
		{Kind: "MeshService", Plural: "meshservices", Short: "msvc", New: func() Spec { return new(MeshService) }},
		{Kind: "MeshExternalService", Plural: "meshexternalservices", Short: "extsvc", New: func() Spec { return new(MeshExternalService) }},
		{Kind: "MeshMultiZoneService", Plural: "meshmultizoneservices", Short: "mzsvc", New: func() Spec { return new(MeshMultiZoneService) }},
		{Kind: "HostnameGenerator", Plural: "hostnamegenerators", Short: "hg", Scope: ScopeGlobal, New: func() Spec { return new(HostnameGenerator) }},
		{Kind: "ZoneEgress", Plural: "zoneegresses", Scope: ScopeGlobal, SpecAtTop: true, New: func() Spec { return new(ZoneEgress) }},
		{Kind: "ZoneIngress", Plural: "zoneingresses", Scope: ScopeGlobal, SpecAtTop: true, New: func() Spec { return new(ZoneIngress) }},
	}
}
