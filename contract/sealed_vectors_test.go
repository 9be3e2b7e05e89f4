package contract_test

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/outboxd/outboxd/contract"
)

func TestApprovalAndPackageVectors(t *testing.T) {
	data, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Approval []struct {
			Name, SHA256 string
			Members      map[string]string
		}
		Package []struct{ Name, Package, Verdict string }
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Approval) == 0 || len(v.Package) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range v.Approval {
		m := v.Members
		m["result_sha256"] = m["request_sha256"] // no part of an approval
		b := bindingOf(t, m)
		op := &contract.Operation{StatusRef: b.StatusRef, Scope: b.Scope, Original: b.Revisions, RequestSum: b.Request, Origin: contract.Origin{
			Provider: b.Provider, APIFamily: b.APIFamily, AdapterRevision: b.AdapterRevision, ResponseID: b.ResponseID, CallID: b.CallID,
		}}
		a := contract.Approval{ID: m["approval_id"], Approver: m["approver"], ApprovedAt: instant(t, m["approved_at"]), ExpiresAt: instant(t, m["expires_at"])}
		expectDigest(t, "approval", v.Name, a.Digest(op), v.SHA256)
	}
	for _, v := range v.Package {
		p, err := contract.ParsePackage([]byte(v.Package))
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if got := p.Verify(); (len(got) == 0) != (v.Verdict == "whole") {
			t.Errorf("%s: misfits %v, want %s", v.Name, got, v.Verdict)
		}
	}
}

func instant(t *testing.T, millis string) time.Time {
	t.Helper()
	if millis == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(millis, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(n)
}
