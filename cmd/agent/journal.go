package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// toJournal reports whether a file is the stream to systemd's journal that JOURNAL_STREAM names by
// device and inode (systemd.exec(5)).
func toJournal(stream string, f *os.File) bool {
	var dev, ino uint64
	if n, err := fmt.Sscanf(stream, "%d:%d", &dev, &ino); n != 2 || err != nil {
		return false
	}
	st, err := f.Stat()
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && uint64(sys.Dev) == dev && sys.Ino == ino
}

// journalHandler writes lines with the priority in front that the journal takes from there ("<3>",
// sd-daemon(3)), and without the time, which the journal has itself.
type journalHandler struct {
	inner slog.Handler // writes into line
	out   *journalOut
}

// journalOut is shared by the handlers of a logger.
type journalOut struct {
	w    io.Writer
	mu   sync.Mutex   // held while a line is made and written
	line bytes.Buffer // guarded by mu
}

func newJournalHandler(w io.Writer, format string, o *slog.HandlerOptions) *journalHandler {
	out := &journalOut{w: w}
	opts := *o
	opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	if format == "json" {
		return &journalHandler{slog.NewJSONHandler(&out.line, &opts), out}
	}
	return &journalHandler{slog.NewTextHandler(&out.line, &opts), out}
}

// priority is that of syslog(3).
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

// Enabled implements [slog.Handler].
func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.inner.Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.line.Reset()
	fmt.Fprintf(&h.out.line, "<%d>", priority(r.Level))
	if err := h.inner.Handle(ctx, r); err != nil {
		return err
	}
	_, err := h.out.w.Write(h.out.line.Bytes())
	return err
}

// WithAttrs implements [slog.Handler].
func (h *journalHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return &journalHandler{h.inner.WithAttrs(as), h.out}
}

// WithGroup implements [slog.Handler].
func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{h.inner.WithGroup(name), h.out}
}
