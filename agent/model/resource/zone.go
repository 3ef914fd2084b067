package resource

// ZoneEgress is a proxy through which traffic leaves the zone.
type ZoneEgress struct {
	Zone       string               `json:"zone,omitempty"` // "" means the zone of the reading agent
	Networking ZoneEgressNetworking `json:"networking"`
}

// ZoneEgressNetworking holds the listener address of the egress.
type ZoneEgressNetworking struct {
	Address string `json:"address"`
	Port    uint32 `json:"port"`
	Admin   *Admin `json:"admin,omitempty"`
}

// ZoneIngress is a proxy through which traffic from other zones enters the zone.
type ZoneIngress struct {
	Zone              string                `json:"zone,omitempty"` // "" means the zone of the reading agent
	Networking        ZoneIngressNetworking `json:"networking"`
	AvailableServices []AvailableService    `json:"availableServices,omitempty"`
}

// ZoneIngressNetworking holds the listener address of the ingress, and the address under which
// other zones reach it, if that differs.
type ZoneIngressNetworking struct {
	Address           string `json:"address,omitempty"`
	Port              uint32 `json:"port"`
	AdvertisedAddress string `json:"advertisedAddress,omitempty"` // "" and 0: Address and Port
	AdvertisedPort    uint32 `json:"advertisedPort,omitempty"`
	Admin             *Admin `json:"admin,omitempty"`
}

// AvailableService is a subset of a service that the ingress leads to.
type AvailableService struct {
	Tags            map[string]string `json:"tags"`
	Instances       uint32            `json:"instances,omitempty"`
	Mesh            string            `json:"mesh,omitempty"` // "": DefaultMesh
	ExternalService bool              `json:"externalService,omitempty"`
}

// Advertised returns the address and port under which other zones reach the ingress; "" if there is
// none.
func (z *ZoneIngress) Advertised() (address string, port uint32) {
	if n := &z.Networking; n.AdvertisedAddress != "" {
		return n.AdvertisedAddress, n.AdvertisedPort
	}
	return z.Networking.Address, z.Networking.Port
}

// Validate checks the egress.
func (z *ZoneEgress) Validate(v *Validator) {
	v.Field("zone").optionalName(z.Zone)
	v = v.Field("networking")
	v.Field("address").Host(z.Networking.Address)
	v.Field("port").Port(z.Networking.Port)
	z.Networking.Admin.validate(v.Field("admin"))
}

// Validate checks the ingress. An ingress of another zone may have only an advertised address.
func (z *ZoneIngress) Validate(v *Validator) {
	v.Field("zone").optionalName(z.Zone)
	n, at := &z.Networking, v.Field("networking")
	if n.Address != "" || n.AdvertisedAddress == "" {
		at.Field("address").Host(n.Address)
	}
	at.Field("port").Port(n.Port)
	switch {
	case n.AdvertisedAddress != "" && n.AdvertisedPort == 0:
		at.Field("advertisedPort").Faultf("the port is missing: advertisedAddress needs one")
	case n.AdvertisedPort != 0 && n.AdvertisedAddress == "":
		at.Field("advertisedAddress").Faultf("the address is missing: advertisedPort needs one")
	}
	if n.AdvertisedAddress != "" {
		at.Field("advertisedAddress").Host(n.AdvertisedAddress)
	}
	at.Field("advertisedPort").portOrZero(n.AdvertisedPort)
	n.Admin.validate(at.Field("admin"))
	for i := range z.AvailableServices {
		s, v := &z.AvailableServices[i], v.Field("availableServices").Index(i)
		v.Field("tags").serviceTags(s.Tags)
		v.Field("mesh").optionalName(s.Mesh)
	}
}

func (a *Admin) validate(v *Validator) {
	if a != nil {
		v.Field("port").portOrZero(a.Port)
	}
}
