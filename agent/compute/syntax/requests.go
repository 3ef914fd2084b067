package syntax

import (
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	netstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// RedirectStatus returns the status of a redirect.
func RedirectStatus(a *routev3.RedirectAction) uint32 {
	switch a.GetResponseCode() {
	case routev3.RedirectAction_FOUND:
		return 302
	case routev3.RedirectAction_SEE_OTHER:
		return 303
	case routev3.RedirectAction_TEMPORARY_REDIRECT:
		return 307
	case routev3.RedirectAction_PERMANENT_REDIRECT:
		return 308
	}
	return 301
}

// Rewrite replaces all matches of a regular expression. \1 to \9 refer to its groups.
func Rewrite(path, pattern, substitution string) string {
	if _, _, err := CompileRegex(pattern); err != nil {
		return path
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return path
	}
	var template strings.Builder
	for i := 0; i < len(substitution); i++ {
		switch c := substitution[i]; {
		case c == '$':
			template.WriteString("$$")
		case c == '\\' && i+1 < len(substitution) && substitution[i+1] >= '0' && substitution[i+1] <= '9':
			i++
			template.WriteString("${" + substitution[i:i+1] + "}")
		default:
			template.WriteByte(c)
		}
	}
	return re.ReplaceAllString(path, template.String())
}

// ServerNameKeys returns the keys under which a network filter set_filter_state stores the server
// name that a client requests. all is false if it also stores other values.
func ServerNameKeys(config *anypb.Any) (keys []string, all bool) {
	m := &netstatev3.Config{}
	all = config.UnmarshalTo(m) == nil && len(m.GetOnDownstreamTlsHandshake()) == 0
	for _, v := range m.GetOnNewConnection() {
		if v.GetFormatString().GetTextFormatSource().GetInlineString() != "%REQUESTED_SERVER_NAME%" {
			all = false
			continue
		}
		keys = append(keys, v.GetObjectKey())
	}
	return keys, all
}
