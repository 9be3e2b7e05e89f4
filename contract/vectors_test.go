package contract_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/outboxd/outboxd/contract"
)

const vectorsFile = "testdata/vectors.json"

type input struct{ Name, Input, Hex string }

func (v input) raw(t *testing.T) []byte {
	t.Helper()
	if v.Hex == "" {
		return []byte(v.Input)
	}
	raw, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatalf("vector %q: %v", v.Name, err)
	}
	return raw
}

type scope struct {
	Tenant, Subject, Tool string
	Key                   string `json:"idempotency_key"`
}

type vectors struct {
	Canonical []struct {
		input
		Canonical string
	}
	Refused []struct {
		input
		Path *string // absent: a syntax error, wherever the decoder saw it
	}
	Request []struct {
		scope
		Name, Arguments, SHA256 string
		Revisions               contract.Revisions
	}
	Result  []struct{ Name, Result, SHA256 string }
	Binding []struct {
		Name, SHA256 string
		Members      map[string]string
	}
	WireKey []struct {
		scope
		Name    string
		WireKey string `json:"wire_key"`
	} `json:"wire_key"`
	Revision []struct{ Name, Kind, Covers, Revision string }
}

func load(t *testing.T) vectors {
	t.Helper()
	data, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("read %s: %v", vectorsFile, err)
	}
	return v
}

func TestCanonicalVectors(t *testing.T) {
	for _, v := range load(t).Canonical {
		got, err := contract.Canonical(v.raw(t))
		if err != nil || string(got) != v.Canonical {
			t.Errorf("%s: Canonical(%q) = %q, %v, want %q", v.Name, v.Input, got, err, v.Canonical)
		}
		if !contract.IsCanonical([]byte(v.Canonical)) {
			t.Errorf("%s: IsCanonical(%q) = false", v.Name, v.Canonical)
		}
		if want := v.Input == v.Canonical; contract.IsCanonical(v.raw(t)) != want {
			t.Errorf("%s: IsCanonical(%q) = %v", v.Name, v.Input, !want)
		}
	}
}

func TestRefusedVectors(t *testing.T) {
	for _, v := range load(t).Refused {
		got, err := contract.Canonical(v.raw(t))
		var wrong *contract.InputError
		if !errors.As(err, &wrong) || got != nil {
			t.Errorf("%s: Canonical(%q) = %q, %v, want an InputError", v.Name, v.raw(t), got, err)
			continue
		}
		if v.Path != nil && wrong.Path != *v.Path || wrong.What == "" || wrong.Allowed == "" {
			t.Errorf("%s: error is %+v, want the path of the vector and both texts", v.Name, *wrong)
		}
		if contract.IsCanonical(v.raw(t)) {
			t.Errorf("%s: IsCanonical(%q) = true", v.Name, v.raw(t))
		}
	}
}

func TestDigestVectors(t *testing.T) {
	v := load(t)
	for _, v := range v.Request {
		s := contract.Scope{Tenant: v.Tenant, Subject: v.Subject, Tool: v.Tool, Key: "not digested"}
		expectDigest(t, "request", v.Name, contract.RequestDigest(s, []byte(v.Arguments), v.Revisions), v.SHA256)
	}
	for _, v := range v.Result {
		expectDigest(t, "result", v.Name, contract.ResultDigest([]byte(v.Result)), v.SHA256)
	}
	for _, v := range v.Binding {
		expectDigest(t, "binding", v.Name, bindingOf(t, v.Members).Digest(), v.SHA256)
	}
}

func expectDigest(t *testing.T, kind, name string, got [32]byte, want string) {
	t.Helper()
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("%s digest of %s = %x, want %s", kind, name, got, want)
	}
}

func bindingOf(t *testing.T, m map[string]string) contract.Binding {
	t.Helper()
	v := contract.Binding{
		StatusRef: m["status_ref"],
		Scope:     contract.Scope{Tenant: m["tenant"], Subject: m["subject"], Tool: m["tool"], Key: m["idempotency_key"]},
		Revisions: contract.Revisions{
			Input: m["input_revision"], Output: m["output_revision"], Effect: m["effect_revision"],
			Handler: m["handler_revision"], Producer: m["producer_revision"], Policy: m["policy_revision"],
		},
		Provider: m["provider"], APIFamily: m["api_family"], AdapterRevision: m["adapter_revision"],
		ResponseID: m["response_id"], CallID: m["call_id"], Reference: m["reference"],
	}
	for _, d := range []struct {
		text string
		to   *[32]byte
	}{{m["request_sha256"], &v.Request}, {m["result_sha256"], &v.Result}} {
		if n, err := hex.Decode(d.to[:], []byte(d.text)); n != 32 || err != nil {
			t.Fatalf("digest %q: %v", d.text, err)
		}
	}
	return v
}

func TestWireKeyVectors(t *testing.T) {
	seen := map[string]string{}
	for _, v := range load(t).WireKey {
		s := contract.Scope{Tenant: v.Tenant, Subject: v.Subject, Tool: v.Tool, Key: v.Key}
		got := contract.WireKey(contract.WireScope, s)
		if got != v.WireKey {
			t.Errorf("wire key of %s = %s, want %s", v.Name, got, v.WireKey)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one wire key", v.Name, other)
		}
		seen[got] = v.Name
		if raw := contract.WireKey(contract.WireRaw, s); raw != v.Key {
			t.Errorf("raw wire key of %s = %q, want %q", v.Name, raw, v.Key)
		}
	}
}

func TestVectorsInAnotherLanguage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT CHECKED: no python3 here, so the vectors were recomputed by this package alone")
	}
	out, err := exec.CommandContext(t.Context(), python, "-I", "testdata/vectors.py", vectorsFile).CombinedOutput()
	if err != nil {
		t.Errorf("vectors.py: %v\n%s", err, out)
	}
}
