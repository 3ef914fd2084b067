package chromium_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPage uses each function of a page on a small document.
func TestPage(t *testing.T) {
	b := chromium.Start(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "x=1; SameSite=Strict; HttpOnly")
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `<!doctype html><meta name=viewport content="width=device-width"><title>x</title><link rel=icon href="data:,"><input id=i><button id=b>Go</button><p id=p></p>
			<script>b.onclick = () => p.textContent = i.value + "!" + matchMedia("(prefers-color-scheme: dark)").matches + innerWidth</script>`)
	}))
	defer s.Close()
	p := b.Page(t)
	p.Open(s.URL + "/")
	p.Resize(375, 600)
	p.Media("dark", true)
	p.Press("Tab")
	if got := p.Focused(); !strings.HasPrefix(got, "input#i") {
		t.Errorf("focused: %s", got)
	}
	p.Type("hello")
	p.Press("Backspace", "x", "Tab", "Enter")
	p.Until(`document.querySelector("#p").textContent !== ""`)
	if got := p.Text("#p"); got != "hellx!true375" {
		t.Errorf("text %q", got)
	}
	p.Press("Shift+Tab", "Control+a")
	p.Type("1")
	p.Click("#b")
	p.Until(`document.querySelector("#p").textContent === "1!true375"`)
	if got := p.Cookies(); len(got) != 1 || got[0] != "x SameSite=Strict HttpOnly=true Secure=false" {
		t.Errorf("cookies %v", got)
	}
	if got := p.Picture("webp"); string(got[8:12]) != "WEBP" {
		t.Errorf("a picture begins with %q", got[:12])
	}
	if f := p.Faults(); f != nil {
		t.Errorf("faults %q", f)
	}
	p.Eval(`fetch("/missing").then(() => { console.error("bad"); setTimeout(() => { throw new Error("worse") }) })`, nil)
	p.Eval(`new Promise(done => setTimeout(done, 1))`, nil)
	p.Reload()
	if f := strings.Join(p.Faults(), "\n"); !strings.Contains(f, "404") || !strings.Contains(f, "bad") ||
		!strings.Contains(f, "worse") {
		t.Errorf("faults %q", f)
	}
	if err := p.TryEval(`Promise.reject(new Error("no"))`, nil); err == nil {
		t.Error("a rejected promise is no error")
	}
	other := b.Page(t)
	other.Open(s.URL + "/missing")
	other.Faults()
	if got := p.Requests(); len(got) != 3 || got[1] != s.URL+"/missing" {
		t.Errorf("requests %v", got)
	}
}
