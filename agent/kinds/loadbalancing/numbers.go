package loadbalancing

// prime reports whether a number has no divisor but one and itself. It takes time of the order of its root.
func prime(n uint32) bool {
	if n < 2 || n > 2 && n%2 == 0 {
		return false
	}
	for d := uint64(3); d*d <= uint64(n); d += 2 {
		if uint64(n)%d == 0 {
			return false
		}
	}
	return true
}
