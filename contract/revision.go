package contract

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/outboxd/outboxd/config"
)

// maxRevision is how long a declared revision may be, in bytes.
const maxRevision = 64

// revisionBytes is how much of the digest a derived revision keeps.
const revisionBytes = 12

// The bodies of the revisions, as docs/contract.md lists them. What tunes a
// tool (retry, timeouts, limits, headers, exit codes, environment) is in none of
// them: tuning must not part the backlog from its contract.
type (
	schemaBody struct {
		Schema any `json:"schema"`
	}
	effectBody struct {
		Effect  string `json:"effect"`
		WireKey string `json:"wire_key"`
	}
	handlerBody struct {
		Handler any `json:"handler"`
		Query   any `json:"query"`
	}
	producerBody struct {
		Tool string `json:"tool"`
	}
	policyBody struct {
		Approval string `json:"approval"`
		Guards   []any  `json:"guards"`
	}
	guardBody struct {
		Purpose string `json:"purpose"`
		Check   any    `json:"check"`
	}
	rolesCheck struct {
		Kind  string   `json:"kind"`
		Roles []string `json:"roles"`
	}
	selectCheck struct {
		Kind   string `json:"kind"`
		Select string `json:"select"`
	}
	httpTarget struct {
		Kind   string `json:"kind"`
		Method string `json:"method"`
		Target string `json:"target"`
	}
	execTarget struct {
		Kind string   `json:"kind"`
		Argv []string `json:"argv"`
	}
	sqlTarget struct {
		Kind       string   `json:"kind"`
		Result     string   `json:"result"`
		Statements []string `json:"statements"`
	}
	goTarget struct {
		Kind string `json:"kind"`
	}
)

// revisions gives the six revisions of a tool: declared, else derived.
func revisions(t config.Tool, input, output *Schema) (Revisions, error) {
	handler, err := handlerTarget(t)
	if err != nil {
		return Revisions{}, err
	}
	query, err := queryTarget(t.Query)
	if err != nil {
		return Revisions{}, err
	}
	policy, err := policy(t)
	if err != nil {
		return Revisions{}, err
	}
	var r Revisions
	for _, v := range []struct {
		kind, declared string
		body           any
		to             *string
	}{
		{"input", t.Revisions.Input, schemaBody{input.body()}, &r.Input},
		{"output", t.Revisions.Output, schemaBody{output.body()}, &r.Output},
		{"effect", t.Revisions.Effect, effectBody{t.Effect, t.WireKey}, &r.Effect},
		{"handler", t.Revisions.Handler, handlerBody{handler, query}, &r.Handler},
		{"producer", t.Revisions.Producer, producerBody{t.Name}, &r.Producer},
		{"policy", t.Revisions.Policy, policy, &r.Policy},
	} {
		if *v.to, err = revision(v.kind, v.declared, v.body); err != nil {
			return Revisions{}, err
		}
	}
	return r, nil
}

// revision is the declared one, or the first bytes of a digest over the kind
// and the canonical body.
func revision(kind, declared string, body any) (string, error) {
	if declared != "" {
		if len(declared) > maxRevision || strings.ContainsFunc(declared, func(r rune) bool { return r < ' ' || r > '~' }) {
			return "", &InputError{
				Path: "revisions." + kind, What: "is too long or not printable",
				Allowed: fmt.Sprintf("up to %d printable ASCII characters", maxRevision),
			}
		}
		return declared, nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("describe %s: %w", kind, err)
	}
	canonical, err := CanonicalLimit(raw, len(raw))
	if err != nil {
		return "", fmt.Errorf("describe %s: %w", kind, err)
	}
	return encode(sha256.Sum256(append([]byte(tagRevision+kind+tagVersion), canonical...)), revisionBytes), nil
}

func handlerTarget(t config.Tool) (any, error) {
	if t.SQL != nil {
		return sqlTarget{"sql", t.SQL.Result, t.SQL.Statements}, nil
	}
	return target(t.HTTP, t.Exec, http.MethodPost)
}

// EffectRevision is the one that is derived for an effect class and a wire key mode.
func EffectRevision(effect, wire string) string {
	r, err := revision("effect", "", effectBody{effect, wire})
	if err != nil {
		return "" // two words: they always are JSON
	}
	return r
}

// policy is what has to agree before an effect. How long a guard may take and how
// long an approval lasts are tuning.
func policy(t config.Tool) (policyBody, error) {
	b := policyBody{Approval: string(approvalMode(t)), Guards: []any{}}
	for i, g := range t.Guards {
		var check any
		var err error
		switch {
		case g.Static != nil:
			roles := slices.Sorted(slices.Values(g.Static.Roles))
			check = rolesCheck{"static", roles}
		case g.SQL != nil:
			check = selectCheck{"sql", g.SQL.Select}
		default:
			check, err = target(g.HTTP, g.Exec, http.MethodPost)
		}
		if err != nil {
			return b, fmt.Errorf("guards[%d]: %w", i, err)
		}
		b.Guards = append(b.Guards, guardBody{g.Purpose, check})
	}
	return b, nil
}

func queryTarget(q *config.Query) (any, error) {
	if q == nil {
		return nil, nil
	}
	return target(q.HTTP, q.Exec, http.MethodGet)
}

// target is what identifies the outside that is called. With neither HTTP nor
// exec it is a function of the embedding program.
func target(h *config.HTTP, e *config.Exec, method string) (any, error) {
	switch {
	case h != nil:
		endpoint, err := endpoint(h.URL)
		if err != nil {
			return nil, err
		}
		if h.Method != "" {
			method = h.Method
		}
		return httpTarget{"http", method, endpoint}, nil
	case e != nil:
		return execTarget{"exec", e.Argv}, nil
	default:
		return goTarget{"go"}, nil
	}
}

// endpoint is scheme, host, port and path of a URL in one spelling. Userinfo
// and query stay out: secrets that rotate live there. The URL is never quoted.
func endpoint(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return "", &InputError{Path: "url", What: "is no URL with a host", Allowed: "an absolute http or https URL"}
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), config.Port(u)) + path, nil
}
