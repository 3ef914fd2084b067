//go:build !linux

package dns

import "errors"

func setMark(uintptr, uint32) error { return errors.ErrUnsupported }
