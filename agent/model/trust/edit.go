package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Document returns the text of a new trust file.
func (f *File) Document() ([]byte, error) {
	if err := f.check().Err(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Trust file of a pool of nearside agents. Change it with nearside trust edit.\n"+
		"cluster: %s\nversion: %d\nmode: %s\nthreshold: %d\n", jsonText(f.Cluster), f.Version, f.Mode, f.Threshold)
	list(&b, "roots", f.Roots)
	list(&b, "roles", f.Roles)
	list(&b, "keys", f.Keys)
	list(&b, "nodes", f.Nodes)
	list(&b, "revoked", f.Revoked)
	return b.Bytes(), nil
}

// list writes a list with one item in each line.
func list[T any](b *bytes.Buffer, field string, items []T) {
	if len(items) == 0 {
		fmt.Fprintf(b, "%s: []\n", field)
		return
	}
	fmt.Fprintf(b, "%s:\n", field)
	for _, x := range items {
		fmt.Fprintf(b, "- %s\n", jsonText(x))
	}
}

// jsonText returns a value as JSON, which is YAML too.
func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the types of this package always have a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

var (
	versionLine = regexp.MustCompile(`(?m)^version:[ \t]*[0-9]+`)
	modeLine    = regexp.MustCompile(`(?m)^mode:[ \t]*"?[a-z]+"?`)
	revokedLine = regexp.MustCompile(`(?m)^revoked:[ \t]*(\[\][ \t]*)?$`)
)

// Edit returns the document of a trust file with a higher version, and with other changes. It
// changes nothing else in the text. edit receives the content that the result must have.
func Edit(document []byte, edit func(text []byte, f *File) ([]byte, error)) ([]byte, error) {
	want, err := DecodeFile(document)
	if err != nil {
		return nil, err
	}
	want.Version++
	out, err := replaceLine(document, versionLine, "version", fmt.Sprintf("version: %d", want.Version))
	if err == nil {
		out, err = edit(out, want)
	}
	if err != nil {
		return nil, err
	}
	got, err := DecodeFile(out)
	if err != nil {
		return nil, fmt.Errorf("the change makes the trust file invalid: %w", err)
	}
	if jsonText(got) != jsonText(want) {
		return nil, errForm("the document")
	}
	return out, nil
}

func errForm(what string) error {
	return fmt.Errorf("%s of the trust file has a form that this command cannot change; change it by hand with: "+
		"nearside trust edit", what)
}

// replaceLine replaces the only line of a field.
func replaceLine(text []byte, line *regexp.Regexp, field, with string) ([]byte, error) {
	at := line.FindAllIndex(text, 2)
	if len(at) != 1 {
		return nil, errForm("the field " + field)
	}
	return bytes.Join([][]byte{text[:at[0][0]], []byte(with), text[at[0][1]:]}, nil), nil
}

// SetMode returns the document of a trust file with another mode, and with the next version.
func SetMode(document []byte, mode string) ([]byte, error) {
	return Edit(document, func(text []byte, f *File) ([]byte, error) {
		f.Mode = mode
		return replaceLine(text, modeLine, "mode", "mode: "+mode)
	})
}

// Revoke returns the document of a trust file that revokes a key, and with the next version.
func Revoke(document []byte, r Revocation) ([]byte, error) {
	return Edit(document, func(text []byte, f *File) ([]byte, error) {
		f.Revoked = append([]Revocation{r}, f.Revoked...)
		item := "revoked:\n- " + jsonText(r)
		at := revokedLine.FindAllIndex(text, 2)
		switch {
		case len(at) == 1:
			return bytes.Join([][]byte{text[:at[0][0]], []byte(item), text[at[0][1]:]}, nil), nil
		case len(f.Revoked) > 1:
			return nil, errForm("the list revoked")
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(bytes.Clone(text), '\n')
		}
		return append(bytes.Clone(text), item+"\n"...), nil
	})
}
