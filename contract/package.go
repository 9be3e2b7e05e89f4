package contract

import (
	"encoding/hex"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// PackageFormat names the form of a Package.
const PackageFormat = "outboxd.package.v1"

// Package is a settled answer with everything that its digests bind: whoever has it
// can recompute them without the database (docs/contract.md).
type Package struct {
	Format    string            `json:"format"`
	StatusRef string            `json:"status_ref"`
	Tenant    string            `json:"tenant_id"`
	Subject   string            `json:"subject_id"`
	Tool      string            `json:"tool_name"`
	Key       string            `json:"idempotency_key"`
	Arguments jsontext.Value    `json:"arguments"`
	Origin    PackageOrigin     `json:"origin"`
	Revisions PackageRevisions  `json:"revisions"` // in force at the effect
	Accepted  AcceptedRevisions `json:"accepted_revisions"`
	Request   string            `json:"request_sha256"`
	Result    jsontext.Value    `json:"result"`
	ResultSum string            `json:"result_sha256"`
	Reference string            `json:"reference"`
	Binding   string            `json:"call_binding_sha256"`
}

// PackageOrigin is the provider's call; what there is not is empty.
type PackageOrigin struct {
	Provider        string `json:"provider"`
	APIFamily       string `json:"api_family"`
	AdapterRevision string `json:"adapter_revision"`
	ResponseID      string `json:"response_id"`
	CallID          string `json:"call_id"`
}

// PackageRevisions are the six.
type PackageRevisions struct {
	Input    string `json:"input"`
	Output   string `json:"output"`
	Effect   string `json:"effect"`
	Handler  string `json:"handler"`
	Producer string `json:"producer"`
	Policy   string `json:"policy"`
}

// AcceptedRevisions are those that the request digest covers, as they were when the
// operation was accepted.
type AcceptedRevisions struct {
	Input  string `json:"input"`
	Output string `json:"output"`
	Effect string `json:"effect"`
}

// NewPackage is the package of an operation and its receipt: the digests are those
// that are stored, so Verify tells whether the rows are what was recorded.
func NewPackage(op *Operation, result []byte, resultSum, binding []byte, reference string) *Package {
	if len(result) == 0 {
		result = []byte("null")
	}
	return &Package{
		Format: PackageFormat, StatusRef: op.StatusRef, Tenant: op.Scope.Tenant, Subject: op.Scope.Subject,
		Tool: op.Scope.Tool, Key: op.Scope.Key, Arguments: op.Arguments, Origin: PackageOrigin(op.Origin),
		Revisions: PackageRevisions(op.Revisions),
		Accepted:  AcceptedRevisions{op.Original.Input, op.Original.Output, op.Original.Effect},
		Request:   hex.EncodeToString(op.RequestSum[:]), Result: result, ResultSum: hex.EncodeToString(resultSum),
		Reference: reference, Binding: hex.EncodeToString(binding),
	}
}

// ErrPackage says that a package is not what was recorded.
var ErrPackage = errors.New("package is not what was recorded")

// Verify recomputes the digests and names those that do not fit; none: the package is
// what was recorded, of this key, call, provider and contract.
func (p *Package) Verify() (fields []string) {
	arguments, err := Canonical(p.Arguments)
	if err != nil {
		return []string{"arguments"}
	}
	result, err := Canonical(p.Result)
	if err != nil {
		return []string{"result"}
	}
	if p.Format != PackageFormat {
		fields = append(fields, "format")
	}
	scope := Scope{Tenant: p.Tenant, Subject: p.Subject, Tool: p.Tool, Key: p.Key}
	request := RequestDigest(scope, arguments, Revisions{Input: p.Accepted.Input, Output: p.Accepted.Output, Effect: p.Accepted.Effect})
	if p.Request != hex.EncodeToString(request[:]) {
		fields = append(fields, "request_sha256")
	}
	sum := ResultDigest(result)
	if p.ResultSum != hex.EncodeToString(sum[:]) {
		fields = append(fields, "result_sha256")
	}
	op := Operation{StatusRef: p.StatusRef, Scope: scope, RequestSum: request, Revisions: Revisions(p.Revisions), Origin: Origin(p.Origin)}
	if binding := op.Bind(sum, p.Reference).Digest(); p.Binding != hex.EncodeToString(binding[:]) {
		fields = append(fields, "call_binding_sha256")
	}
	return fields
}

// ParsePackage reads a package, or a settled answer that carries one, strictly. Of an
// answer the members that repeat the package's are compared too. The error is an
// *InputError; a member that differs is ErrPackage.
func ParsePackage(raw []byte) (*Package, error) {
	const most = 4 * MaxBytes
	canonical, err := CanonicalLimit(raw, most)
	if err != nil {
		return nil, err
	}
	var outer struct {
		StatusRef string         `json:"status_ref"`
		Tool      string         `json:"tool"`
		Key       string         `json:"idempotency_key"`
		Result    jsontext.Value `json:"result"`
		Package   jsontext.Value `json:"package"`
	}
	notOne := &InputError{What: "is no package", Allowed: "a settled answer, or its member package"}
	if canonical[0] != '{' || json.Unmarshal(canonical, &outer) != nil {
		return nil, notOne
	}
	inner := jsontext.Value(canonical)
	if outer.Package != nil {
		inner = outer.Package
	}
	p := new(Package)
	if json.Unmarshal(inner, p, json.RejectUnknownMembers(true)) != nil || p.Format == "" {
		return nil, notOne
	}
	if outer.Package != nil && (outer.StatusRef != p.StatusRef || outer.Tool != p.Tool || outer.Key != p.Key || string(outer.Result) != string(p.Result)) {
		return nil, ErrPackage
	}
	return p, nil
}
