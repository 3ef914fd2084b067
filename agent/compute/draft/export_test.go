package draft

// Seal seals a single draft with a Sealer.
func Seal(d *Draft, pool *Pool) (*Sealed, []Fault) {
	s := NewSealer(pool)
	s.Add(d)
	return s.Finish()
}
