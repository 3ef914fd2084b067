package resource

// ZoneEgress is a proxy through which traffic leaves the zone.
type ZoneEgress struct {
	Zone       string               `json:"zone,omitempty"` // "": the zone of whoever reads it
	Networking ZoneEgressNetworking `json:"networking"`
}

// ZoneEgressNetworking is where it listens.
type ZoneEgressNetworking struct {
	Address string `json:"address"`
	Port    uint32 `json:"port"`
	Admin   *Admin `json:"admin,omitempty"`
}

// ZoneIngress is a proxy through which traffic of other zones comes into the zone.
type ZoneIngress struct {
	Zone              string                `json:"zone,omitempty"` // "": the zone of whoever reads it
	Networking        ZoneIngressNetworking `json:"networking"`
	AvailableServices []AvailableService    `json:"availableServices,omitempty"`
}

// ZoneIngressNetworking is where it listens, and where other zones reach it when that is another place.
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

// Advertised is where other zones reach the ingress: "" when that is nowhere.
func (z *ZoneIngress) Advertised() (address string, port uint32) {
	if n := &z.Networking; n.AdvertisedAddress != "" {
		return n.AdvertisedAddress, n.AdvertisedPort
	}
	return z.Networking.Address, z.Networking.Port
}
