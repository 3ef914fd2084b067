package draft

// Seal seals a draft in one go; see Sealer.
func Seal(d *Draft, pool *Pool) (*Sealed, []Fault) {
	s := NewSealer(pool)
	s.Add(d)
	return s.Finish()
}
