package resource

// Validate checks the egress.
func (z *ZoneEgress) Validate(v *Validator) {
	v.Field("zone").optionalName(z.Zone)
	v = v.Field("networking")
	v.Field("address").Host(z.Networking.Address)
	v.Field("port").Port(z.Networking.Port)
	z.Networking.Admin.validate(v.Field("admin"))
}

// Validate checks the ingress. One that is only known from another zone may say where it is advertised and not where it
// listens there.
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
