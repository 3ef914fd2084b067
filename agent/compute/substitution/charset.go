package substitution

// May reports whether a value of the operator may contain a character.
func (s *Segment) May(c byte) bool { return s.may(c) }
