package draft

// Seal seals a draft in one go; see Sealer.
func Seal(d *Draft, intern func(typeURL string, r *Resource) *Resource) (*Sealed, []Fault) {
	s := NewSealer(intern)
	s.Add(d)
	return s.Finish()
}
