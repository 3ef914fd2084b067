package text

import (
	"bytes"
	"testing"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	w := NewTable(&out, "A", "B")
	w.Row("x\ny", "")
	w.Row("\x1b[31mred", "1")
	w.Flush()
	want := "A             B\nx\\ny          -\n\\x1b[31mred   1\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
