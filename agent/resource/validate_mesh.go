package resource

// Validate checks the mesh.
func (m *Mesh) Validate(v *Validator)                 {}
func (m *Dataplane) Validate(v *Validator)            {}
func (m *ExternalService) Validate(v *Validator)      {}
func (m *MeshService) Validate(v *Validator)          {}
func (m *MeshExternalService) Validate(v *Validator)  {}
func (m *MeshMultiZoneService) Validate(v *Validator) {}
func (m *HostnameGenerator) Validate(v *Validator)    {}
func (m *ZoneEgress) Validate(v *Validator)           {}
func (m *Policy) Validate(v *Validator)               {}
func (m *LegacyPolicy) Validate(v *Validator)         {}
