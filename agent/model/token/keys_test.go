package token_test

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// TestOtherProcess checks that a new key of another process is visible at once, and another change
// within a second.
func TestOtherProcess(t *testing.T) {
	c := newClock()
	agent, dir := open(t, c)
	if err := agent.Err(); err != nil {
		t.Fatalf("a directory that does not exist: %v", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("looking made the directory")
	}
	command := token.Open(dir, nil, c.now)
	text := create(t, command, web(), time.Hour)
	claims, err := agent.Verify(text, token.AudienceXDS)
	if err != nil {
		t.Fatalf("a token of a new key: %v", err)
	}
	if err := command.Revoke(claims.ID, claims.Expires); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Verify(text, token.AudienceXDS); err != nil {
		t.Errorf("the directory was looked at more often than once a second: %v", err)
	}
	c.advance(time.Second)
	_, err = agent.Verify(text, token.AudienceXDS)
	wantReason(t, err, text, token.Revoked)
	if err := os.Remove(filepath.Join(dir, "revoked")); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	if _, err := agent.Verify(text, token.AudienceXDS); err != nil {
		t.Errorf("the list of revocations was removed: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	_, err = agent.Verify(text, token.AudienceXDS)
	wantReason(t, err, text, token.UnknownKey)
}

// TestRotate checks that the newest key signs, and that the others verify until they are removed.
func TestRotate(t *testing.T) {
	c := newClock()
	k, dir := open(t, c)
	old := create(t, k, web(), time.Hour)
	first, _ := token.Decode(old)
	second, err := k.Rotate() // within the same second
	if err != nil {
		t.Fatal(err)
	}
	c.advance(-time.Hour) // the clock was set back: the last created key still counts as the newest
	third, err := k.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour)
	list, err := k.List()
	if err != nil || len(list) != 3 || list[0].ID != third || list[1].ID != second || list[2].ID != first.KeyID {
		t.Fatalf("keys %+v, %v", list, err)
	}
	if !list[0].Signs || list[1].Signs || !list[2].Created.Equal(c.t) {
		t.Errorf("keys %+v", list)
	}
	text := create(t, k, web(), time.Hour)
	if claims, err := k.Verify(text, token.AudienceXDS); err != nil || claims.KeyID != third {
		t.Errorf("signed by %q, %v", claims.KeyID, err)
	}
	if _, err := k.Verify(old, token.AudienceXDS); err != nil {
		t.Errorf("a token of the key before: %v", err)
	}
	if err := k.Remove(third); err == nil || !strings.Contains(err.Error(), "nearside token rotate") {
		t.Errorf("the key that signs was removed: %v", err)
	}
	if err := k.Remove(first.KeyID); err != nil {
		t.Fatal(err)
	}
	_, err = k.Verify(old, token.AudienceXDS)
	wantReason(t, err, old, token.UnknownKey)
	for _, kid := range []string{first.KeyID, "../../revoked", ""} {
		if err := k.Remove(kid); err == nil {
			t.Errorf("key %q was removed", kid)
		}
	}
	if err := k.Remove(second); err != nil {
		t.Fatal(err)
	}
	if err := k.Remove(third); err != nil {
		t.Errorf("the only key: %v", err)
	}
	for range 16 {
		if _, err := k.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Rotate(); err == nil || !strings.Contains(err.Error(), "--remove") {
		t.Errorf("a 17th key: %v", err)
	}
	checkModes(t, dir)
}

// TestRecheck checks that a token in use ends like a new one: by its time, its key, or revocation.
func TestRecheck(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, clock *clock, k *token.Keys, c token.Claims)
		want token.Reason
	}{
		"expired": {func(_ *testing.T, clock *clock, _ *token.Keys, _ token.Claims) { clock.advance(time.Hour) },
			token.Expired},
		"revoked": {func(t *testing.T, clock *clock, k *token.Keys, c token.Claims) {
			must(t, k.Revoke(c.ID, c.Expires))
			clock.advance(time.Second)
		}, token.Revoked},
		"key removed": {func(t *testing.T, clock *clock, k *token.Keys, c token.Claims) {
			must(t, k.Remove(c.KeyID))
			clock.advance(time.Second)
		}, token.UnknownKey},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			command, dir := open(t, clock)
			agent := token.Open(dir, nil, clock.now)
			text := create(t, command, web(), time.Hour)
			claims, err := agent.Verify(text, token.AudienceXDS)
			must(t, err)
			clock.advance(59 * time.Minute)
			must(t, agent.Recheck(&claims))
			c.end(t, clock, command, claims)
			wantReason(t, agent.Recheck(&claims), text, c.want)
		})
	}
}

// checkModes checks the mode of each file in a directory.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if st.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has the mode %o", path, st.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRevoke(t *testing.T) {
	c := newClock()
	k, dir := open(t, c)
	short, long := create(t, k, web(), time.Minute), create(t, k, web(), time.Hour)
	for _, text := range []string{short, long} {
		claims, err := token.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Revoke(claims.ID, claims.Expires); err != nil {
			t.Fatal(err)
		}
		_, err = k.Verify(text, token.AudienceXDS)
		wantReason(t, err, text, token.Revoked)
	}
	other := create(t, k, web(), time.Hour)
	if _, err := k.Verify(other, token.AudienceXDS); err != nil {
		t.Errorf("another token of the key: %v", err)
	}
	c.advance(time.Minute)
	if list, err := k.Revocations(); err != nil || len(list) != 1 {
		t.Errorf("revocations %v, %v: those of expired tokens are forgotten", list, err)
	}
	if err := k.Revoke("0", c.t.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "revoked")); err != nil || strings.Count(string(data), "\n") != 2 {
		t.Errorf("the file holds %q, %v", data, err)
	}
	for id, until := range map[string]time.Time{
		"":     c.t.Add(time.Hour),
		"a b":  c.t.Add(time.Hour),
		"x\n1": c.t.Add(time.Hour),
		"past": c.t,
		"far":  c.t.Add(11 * 365 * 24 * time.Hour),
	} {
		if err := k.Revoke(id, until); err == nil {
			t.Errorf("%q was revoked until %s", id, until)
		}
	}
	checkModes(t, dir)
}

// TestRevokedIsBounded checks the error and remedy for a full list.
func TestRevokedIsBounded(t *testing.T) {
	c := newClock()
	k, dir := open(t, c)
	text := create(t, k, web(), time.Hour)
	var b strings.Builder
	for i := range 10000 {
		b.WriteString(strings.Repeat("f", 20) + time.Unix(int64(i), 0).UTC().Format("20060102150405") +
			" 2027-01-01T00:00:00Z\n")
	}
	write(t, filepath.Join(dir, "revoked"), b.String())
	if _, err := k.Verify(text, token.AudienceXDS); err != nil {
		t.Fatal(err)
	}
	if err := k.Revoke("0", c.t.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "rotate") {
		t.Errorf("a list that is full: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFaultyFiles checks that damaged files, and files that others can read or write, are rejected
// with the remedy, and that the other files remain usable.
func TestFaultyFiles(t *testing.T) {
	const kept = token.Reason("")
	for name, c := range map[string]struct {
		// damage damages the directory, the file of the newer of two keys, or the list of
		// revocations.
		damage func(t *testing.T, dir, key, revoked string)
		old    token.Reason // result for a token of the older key
		fresh  token.Reason // the same in a newly started agent
		newer  token.Reason // result for a token of the newer key
		want   []string     // substrings of the error
	}{
		"key open to others": {func(t *testing.T, _, key, _ string) { must(t, os.Chmod(key, 0o644)) }, kept, kept,
			token.UnknownKey, []string{"0644", "0600"}},
		"key open to its group": {func(t *testing.T, _, key, _ string) { must(t, os.Chmod(key, 0o640)) }, kept, kept,
			token.UnknownKey, []string{"0640"}},
		"key is a link": {func(t *testing.T, dir, key, _ string) {
			must(t, os.Rename(key, dir+"/elsewhere"))
			must(t, os.Symlink("elsewhere", key))
		}, kept, kept, token.UnknownKey, []string{"symbolic link"}},
		"key is a pipe": {func(t *testing.T, _, key, _ string) {
			must(t, os.Remove(key))
			mkfifo(t, key)
		}, kept, kept, token.UnknownKey, []string{"not a regular file"}},
		"key of another user": {func(t *testing.T, _, key, _ string) { chown(t, key, 12345) }, kept, kept, token.UnknownKey,
			[]string{"user 12345", "owner"}},
		"key is cut": {func(t *testing.T, _, key, _ string) {
			data, err := os.ReadFile(key)
			must(t, err)
			write(t, key, string(data[:len(data)/2]))
		}, kept, kept, token.UnknownKey, []string{"not a signing key", "PKCS#8"}},
		"key is garbled": {func(t *testing.T, _, key, _ string) {
			write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("garbled")})))
		}, kept, kept, token.UnknownKey, []string{"not a signing key"}},
		"key is huge": {func(t *testing.T, _, key, _ string) { write(t, key, strings.Repeat("x", 5000)) }, kept, kept,
			token.UnknownKey, []string{"4096 bytes"}},
		"key is gone": {func(t *testing.T, _, key, _ string) { must(t, os.Remove(key)) }, kept, kept,
			token.UnknownKey, nil},
		"another file": {func(t *testing.T, dir, _, _ string) { write(t, dir+"/prod.pem", "x") }, kept, kept, kept,
			[]string{"prod.pem", "move the file away"}},
		"list is garbled": {func(t *testing.T, _, _, revoked string) { write(t, revoked, "\x00\xff") }, kept,
			token.Unavailable, kept, []string{"line 1", "revoked"}},
		"list is cut": {func(t *testing.T, _, _, revoked string) { write(t, revoked, "0 2027-01-01T00:00:00Z\n1 2027") },
			kept, token.Unavailable, kept, []string{"line 2"}},
		"list is open": {func(t *testing.T, _, _, revoked string) { must(t, os.Chmod(revoked, 0o666)) }, kept,
			token.Unavailable, kept, []string{"0666"}},
		"list is a link": {func(t *testing.T, dir, _, revoked string) {
			must(t, os.Rename(revoked, dir+"/x"))
			must(t, os.Symlink("x", revoked))
		}, kept, token.Unavailable, kept, []string{"symbolic link"}},
		"directory is open": {func(t *testing.T, dir, _, _ string) { must(t, os.Chmod(dir, 0o750)) }, token.Unavailable,
			token.Unavailable, token.Unavailable, []string{"0750", "0700"}},
		"directory is a link": {func(t *testing.T, dir, _, _ string) {
			must(t, os.Rename(dir, dir+"2"))
			must(t, os.Symlink(dir+"2", dir))
		}, token.Unavailable, token.Unavailable, token.Unavailable, []string{"symbolic link"}},
		"directory is a file": {func(t *testing.T, dir, _, _ string) {
			must(t, os.RemoveAll(dir))
			write(t, dir, "")
		}, token.Unavailable, token.Unavailable, token.Unavailable, []string{"not a directory"}},
		"directory of another user": {func(t *testing.T, dir, _, _ string) {
			must(t, os.Chmod(filepath.Dir(dir), 0o777))
			chown(t, dir, 12345)
		}, token.Unavailable, token.Unavailable, token.Unavailable, []string{"user 12345"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			var log bytes.Buffer
			dir := filepath.Join(t.TempDir(), "state", token.Dir)
			k := token.Open(dir, slog.New(slog.NewTextHandler(&log, nil)), clock.now)
			older := create(t, k, web(), time.Hour)
			kid, err := k.Rotate()
			must(t, err)
			newer := create(t, k, web(), time.Hour)
			must(t, k.Revoke("0", clock.t.Add(time.Hour)))
			c.damage(t, dir, filepath.Join(dir, kid+".pem"), filepath.Join(dir, "revoked"))
			clock.advance(time.Second)
			started := token.Open(dir, nil, clock.now)
			for _, v := range []struct {
				k    *token.Keys
				text string
				want token.Reason
			}{{k, older, c.old}, {k, newer, c.newer}, {started, older, c.fresh}} {
				_, err := v.k.Verify(v.text, token.AudienceXDS)
				if v.want != kept {
					wantReason(t, err, "", v.want)
					if err != nil && strings.Contains(err.Error(), dir) {
						t.Errorf("a peer is told a path: %v", err)
					}
				} else if err != nil {
					t.Errorf("refused: %v", err)
				}
			}
			for _, k := range []*token.Keys{k, started} {
				if err := k.Err(); (err == nil) != (c.want == nil) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			}
			for _, want := range c.want {
				if err := k.Err(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			clock.advance(time.Second)
			_ = k.Err()
			if lines := strings.Count(log.String(), "\n"); lines != min(len(c.want), 1) {
				t.Errorf("logged %d times: %s", lines, log.String())
			}
		})
	}
}

// TestRefusedKeyIsNotReplaced checks that Create generates no new key if the only one is rejected.
func TestRefusedKeyIsNotReplaced(t *testing.T) {
	k, dir := open(t, newClock())
	claims, err := token.Decode(create(t, k, web(), time.Hour))
	must(t, err)
	must(t, os.Chmod(filepath.Join(dir, claims.KeyID+".pem"), 0o644))
	if _, err := k.Create(web(), time.Hour); err == nil || !strings.Contains(err.Error(), "0644") {
		t.Errorf("error %v", err)
	}
	if _, err := k.Rotate(); err != nil { // the remedy, together with Remove
		t.Error(err)
	}
	must(t, k.Remove(claims.KeyID))
	if list, err := k.List(); err != nil || len(list) != 1 {
		t.Errorf("keys %v, %v", list, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
