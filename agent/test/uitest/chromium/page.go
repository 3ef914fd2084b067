package chromium

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Page is a tab. Its methods fail the test of the page.
type Page struct {
	t       testing.TB
	b       *Browser
	session string
	target  string

	// Guarded by the mutex of the browser.
	faults   []string          // errors of the console, exceptions, and failed requests
	requests []string          // URLs
	open     map[string]string // URLs of the requests in flight, by ID
	changed  chan struct{}     // closed and replaced when open changes
	loaded   chan struct{}
}

// Page opens an empty tab with cookies and storage of its own.
func (b *Browser) Page(t testing.TB) *Page {
	t.Helper()
	var context struct{ BrowserContextID string }
	b.must(t, "", "Target.createBrowserContext", nil, &context)
	p := b.tab(t, context.BrowserContextID)
	t.Cleanup(func() {
		_, _ = b.send("", "Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID})
	})
	return p
}

// tab opens an empty tab in a context.
func (b *Browser) tab(t testing.TB, context string) *Page {
	t.Helper()
	var target struct{ TargetID string }
	b.must(t, "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context}, &target)
	var attached struct{ SessionID string }
	b.must(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &Page{t: t, b: b, session: attached.SessionID, target: target.TargetID, loaded: make(chan struct{}, 1),
		open: map[string]string{}, changed: make(chan struct{})}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil)
	}
	p.Resize(1280, 800)
	return p
}

func (b *Browser) must(t testing.TB, session, method string, params, result any) {
	t.Helper()
	raw, err := b.send(session, method, params)
	check(t, err)
	if result != nil {
		check(t, json.Unmarshal(raw, result))
	}
}

func (p *Page) do(method string, params any) {
	p.t.Helper()
	p.b.must(p.t, p.session, method, params, nil)
}

// With returns the page for a subtest, and forgets earlier faults and requests.
func (p *Page) With(t testing.TB) *Page {
	p.t = t
	p.Faults()
	p.Requests()
	return p
}

// event records what a page reports. The caller holds the mutex of the browser.
func (p *Page) event(method string, params json.RawMessage) {
	var e struct {
		Type  string
		Args  []struct{ Value, Description any }
		Entry struct{ Level, Text, URL string }

		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Request   struct{ URL string }
		RequestID string
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	p.track(method, e.RequestID, e.Request.URL)
	switch method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "assert" {
			p.faults = append(p.faults, fmt.Sprintf("console.%s: %v", e.Type, e.Args))
		}
	case "Runtime.exceptionThrown":
		p.faults = append(p.faults, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" {
			p.faults = append(p.faults, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	}
}

// Faults returns and forgets the errors of the page so far.
func (p *Page) Faults() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	out := p.faults
	p.faults = nil
	return out
}

// Requests returns and forgets the URLs that the page has requested.
func (p *Page) Requests() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	out := p.requests
	p.requests = nil
	return out
}

// Open navigates to a URL and waits until it is loaded. If only the fragment differs, the page
// stays.
func (p *Page) Open(url string) {
	p.t.Helper()
	p.forgetLoad()
	var r struct{ ErrorText, LoaderID string }
	p.b.must(p.t, p.session, "Page.navigate", map[string]any{"url": url}, &r)
	if r.ErrorText != "" {
		p.t.Fatalf("%s: %s", url, r.ErrorText)
	}
	if r.LoaderID != "" {
		p.awaitLoad(url)
	}
}

// Before runs a script in each document before its own scripts.
func (p *Page) Before(script string) {
	p.t.Helper()
	p.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": script})
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.forgetLoad()
	p.do("Page.reload", nil)
	p.awaitLoad("reload")
}

// forgetLoad forgets that an earlier document is loaded.
func (p *Page) forgetLoad() {
	select {
	case <-p.loaded:
	default:
	}
}

func (p *Page) awaitLoad(what string) {
	p.t.Helper()
	select {
	case <-p.loaded:
	case <-p.b.done:
		p.t.Fatalf("%s: the browser has ended", what)
	case <-p.t.Context().Done():
		p.t.Fatalf("%s: the test has ended", what)
	}
}

// Eval evaluates an expression, waits for its promise, and decodes its JSON value into out, which
// may be nil.
func (p *Page) Eval(expression string, out any) {
	p.t.Helper()
	check(p.t, p.TryEval(expression, out))
}

// TryEval is like Eval, but returns an exception of the page as an error.
func (p *Page) TryEval(expression string, out any) error {
	raw, err := p.b.send(p.session, "Runtime.evaluate", map[string]any{"expression": expression,
		"awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err != nil {
		return err
	}
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if e := r.ExceptionDetails; e != nil {
		return fmt.Errorf("%s %s", e.Text, e.Exception.Description)
	}
	if out == nil {
		return nil
	}
	if len(r.Result.Value) == 0 {
		return fmt.Errorf("no value: %.200s", expression)
	}
	return json.Unmarshal(r.Result.Value, out)
}

// Until waits until an expression is true. An exception counts as false. A navigation in between
// continues on the next document.
func (p *Page) Until(condition string) {
	p.t.Helper()
	const script = `new Promise((done, fail) => {
		const began = performance.now(); let fault = "";
		const look = () => {
			try { if (%[1]s) return done(true) } catch (e) { fault = String(e) }
			if (performance.now() - began > %[2]d)
				return fail(new Error("never true: " + %[3]s + " " + fault + "\n" + location.hash + "\n" + document.body?.innerText.slice(0, 3000)));
			setTimeout(look, 20);
		};
		look();
	})`
	text := fmt.Sprintf(script, condition, patience.Milliseconds()/2, quote(condition))
	for began := time.Now(); time.Since(began) < patience; {
		err := p.TryEval(text, nil)
		if err == nil {
			return
		}
		if s := err.Error(); strings.Contains(s, "context was destroyed") || strings.Contains(s, "Promise was collected") ||
			strings.Contains(s, "Cannot find context") || strings.Contains(s, "navigated or closed") {
			continue
		}
		p.t.Fatalf("%v\nfaults: %q", err, p.Faults())
	}
	p.t.Fatalf("the page never stops navigating: %s", condition)
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// Resize sets the size of the window in CSS pixels.
func (p *Page) Resize(width, height int) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": width < 500})
}

// Media sets media features: "dark" or "light", and whether motion is reduced.
func (p *Page) Media(scheme string, reduced bool) {
	p.t.Helper()
	motion := "no-preference"
	if reduced {
		motion = "reduce"
	}
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}}})
}

// Picture returns the visible part of the page in a format: "png" or "webp".
func (p *Page) Picture(format string) []byte {
	p.t.Helper()
	var r struct{ Data string }
	params := map[string]any{"format": format}
	if format == "webp" {
		params["quality"] = 80
	}
	p.b.must(p.t, p.session, "Page.captureScreenshot", params, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	check(p.t, err)
	return data
}

// Text returns the visible text of the first element that matches a selector.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var out string
	p.Eval("document.querySelector("+quote(selector)+")?.innerText ?? ''", &out)
	return out
}

// Cookies returns the names of the cookies that the page may send, with their attributes.
func (p *Page) Cookies() []string {
	p.t.Helper()
	var r struct {
		Cookies []struct {
			Name, SameSite   string
			HTTPOnly, Secure bool
		}
	}
	p.b.must(p.t, p.session, "Network.getCookies", nil, &r)
	var out []string
	for _, c := range r.Cookies {
		out = append(out, fmt.Sprintf("%s SameSite=%s HttpOnly=%v Secure=%v", c.Name, c.SameSite, c.HTTPOnly, c.Secure))
	}
	slices.Sort(out)
	return out
}
