package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/rotation"
)

// lossTexts are the causes of drops in markers.
var lossTexts = map[accesslog.Cause]error{
	accesslog.CauseSpoolFull: errors.New("the spool is full"),
	accesslog.CauseSpoolAge:  errors.New("the lines are older than accessLog.spool.maxAge"),
	accesslog.CauseSpoolBad:  errors.New("a file of the spool is damaged"),
	accesslog.CauseDiskFull:  errors.New("the disk of the spool is full or fails"),
	accesslog.CauseStopped:   errors.New("the agent stopped before they were sent or spooled"),
}

// lose records dropped lines for the next marker. next is the number of the first line after them.
// b.mu is held.
func (b *Backlog) lose(why accesslog.Cause, lines uint64, size int, since, until time.Time, next uint64) {
	if b.opts.Marker == nil || lines == 0 {
		return
	}
	b.lossAt = max(b.lossAt, next)
	b.merge(rotation.Loss{Lines: lines, Bytes: uint64(max(size, 0)), Since: since, Until: until, // #nosec G115 -- >= 0
		Where: b.opts.Where, Cause: lossTexts[why], JSON: b.json})
	notify(b.Ready)
}

// merge adds a loss to the one of the next marker. b.mu is held.
func (b *Backlog) merge(l rotation.Loss) {
	if b.loss.Lines > 0 {
		l.Lines += b.loss.Lines
		l.Bytes += b.loss.Bytes
		if b.loss.Since.Before(l.Since) {
			l.Since = b.loss.Since
		}
		if b.loss.Until.After(l.Until) {
			l.Until = b.loss.Until
		}
	}
	b.loss = l
}

// marker returns the marker of dropped lines if it is next. Its number of lines is 0: no counter
// includes it, and its number is that of the next line. b.mu is held.
func (b *Backlog) marker() *Record {
	if b.loss.Lines == 0 || b.taken+1 < b.lossAt {
		return nil
	}
	line := b.opts.Marker(b.loss)
	r := newRecord(len(line), b.loss.Until)
	r.buf = append(r.buf, line...)
	r.First, b.lossAt = b.taken+1, b.taken+1
	b.sentLoss, b.loss = b.loss, rotation.Loss{}
	return r
}

// savedLoss is a loss in the file lossName, for the marker of the next process.
type savedLoss struct {
	Lines, Bytes, Next uint64
	Since, Until       time.Time
	Cause              string
	JSON               bool
}

const (
	lossName  = "loss"
	lossBytes = 4 << 10
)

// saveLoss writes the loss that no marker has reported to disk.
func (b *Backlog) saveLoss() error {
	b.mu.Lock()
	if l := b.sentLoss; l.Lines > 0 {
		b.merge(l)
	}
	l := b.loss
	b.mu.Unlock()
	if l.Lines == 0 || b.discarded {
		return b.spool.dir.remove(lossName)
	}
	text, err := json.Marshal(savedLoss{l.Lines, l.Bytes, b.lossAt, l.Since, l.Until, fmt.Sprint(l.Cause), l.JSON})
	if err != nil {
		return err
	}
	return b.spool.dir.replace(lossName, lossName+".tmp", text, false)
}

// loadLoss reads the loss of an earlier process.
func (b *Backlog) loadLoss() error {
	if b.opts.Marker == nil {
		return nil
	}
	text, err := b.spool.dir.read(lossName, lossBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var l savedLoss
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil || l.Lines == 0 {
		return err
	}
	b.loss = rotation.Loss{Lines: l.Lines, Bytes: l.Bytes, Since: l.Since, Until: l.Until, Where: b.opts.Where,
		Cause: errors.New(l.Cause), JSON: l.JSON}
	b.lossAt = min(l.Next, b.next)
	notify(b.Ready)
	return b.spool.dir.remove(lossName)
}
