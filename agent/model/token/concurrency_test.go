package token_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// TestConcurrency verifies tokens while two Keys of one directory create and remove keys and revoke
// tokens.
func TestConcurrency(t *testing.T) {
	_, dir := open(t, &clock{})
	k := token.Open(dir, nil, time.Now)
	command := token.Open(dir, nil, time.Now)
	text := create(t, k, web(), time.Hour)
	var verifiers, changers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		verifiers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := k.Verify(text, token.AudienceXDS); err != nil {
					t.Errorf("a token whose key was there all the time: %v", err)
					return
				}
				if _, err := k.Verify(strings.Replace(text, ".", "x.", 1), token.AudienceXDS); err == nil {
					t.Error("a wrong token is accepted")
					return
				}
			}
		})
	}
	for _, by := range []*token.Keys{k, command} {
		changers.Go(func() {
			for range 10 {
				kid, err := by.Rotate()
				if err != nil {
					t.Error(err)
					return
				}
				if err := by.Revoke(kid, time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
				created, err := by.Create(web(), time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				if by == command {
					continue
				}
				if _, err := by.Verify(created, token.AudienceXDS); err != nil {
					t.Errorf("the own token: %v", err)
				}
				if list, _ := by.List(); len(list) > 3 {
					if err := by.Remove(list[1].ID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	changers.Wait()
	close(done)
	verifiers.Wait()
	if list, err := k.Revocations(); err != nil || len(list) != 20 {
		t.Errorf("%d of 20 revocations are there (%v)", len(list), err)
	}
}
