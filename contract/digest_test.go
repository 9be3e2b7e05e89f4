package contract_test

import (
	"reflect"
	"testing"

	"github.com/outboxd/outboxd/contract"
)

func TestRequestDigestDoesNotContainTheKey(t *testing.T) {
	args := []byte(payload)
	other := benchScope
	other.Key = "another"
	if contract.RequestDigest(benchScope, args, benchRevisions) != contract.RequestDigest(other, args, benchRevisions) {
		t.Error("two keys have two request digests, want one")
	}
}

func TestRequestDigestBindsEverythingThatItNames(t *testing.T) {
	base := contract.RequestDigest(benchScope, []byte(payload), benchRevisions)
	seen := map[[32]byte]string{base: "the base"}
	add := func(what string, digest [32]byte) {
		if other, ok := seen[digest]; ok {
			t.Errorf("another %s has the digest of %s", what, other)
		}
		seen[digest] = what
	}
	for _, field := range []string{"Tenant", "Subject", "Tool"} {
		s := benchScope
		reflect.ValueOf(&s).Elem().FieldByName(field).SetString("other")
		add(field, contract.RequestDigest(s, []byte(payload), benchRevisions))
	}
	for _, field := range []string{"Input", "Output", "Effect"} {
		r := benchRevisions
		reflect.ValueOf(&r).Elem().FieldByName(field).SetString("other")
		add(field, contract.RequestDigest(benchScope, []byte(payload), r))
	}
	add("arguments", contract.RequestDigest(benchScope, []byte(`{}`), benchRevisions))
}

func TestBindingDigestBindsEveryField(t *testing.T) {
	var v contract.Binding
	seen := map[[32]byte]string{v.Digest(): "nothing"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[contract.Binding]()) {
		if field.Anonymous {
			continue
		}
		changed := contract.Binding{}
		switch to := reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index); to.Kind() {
		case reflect.String:
			to.SetString("x")
		case reflect.Array:
			to.Index(0).SetUint(1)
		default:
			t.Fatalf("field %s is a %s", field.Name, to.Kind())
		}
		digest := changed.Digest()
		if other, ok := seen[digest]; ok {
			t.Errorf("%s and %s have one digest", field.Name, other)
		}
		seen[digest] = field.Name
	}
	if len(seen) != 20 {
		t.Errorf("%d digests, want one for each of 19 fields, and the base", len(seen))
	}
}

func TestNoResultIsNull(t *testing.T) {
	if contract.ResultDigest(nil) != contract.ResultDigest([]byte("null")) {
		t.Error("the digests of no result and of null differ")
	}
}
