package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
)

// The uids of principals in these tests.
const (
	shopUID  = 12001 // acme, shop, two tools
	acmeUID  = 12002 // acme, anybody
	otherUID = 12003 // another tenant
	nobody   = 12004 // in no principal
)

func shops(w *world) {
	w.api.Swap(api.NewAccess(config.Operators{UIDs: []int{0}}, []config.Principal{
		{Name: "shop", UID: shopUID, MaySubmit: []config.Scope{{Tenant: "acme", Subject: "shop", Tools: []string{opaque, idempotent}}}},
		{Name: "acme", UID: acmeUID, MaySubmit: []config.Scope{{Tenant: "acme", Subject: "*"}}},
		{Name: "other", UID: otherUID, MaySubmit: []config.Scope{{Tenant: "globex", Subject: "shop"}, {Tenant: "globex", Subject: "ops"}}},
	}))
}

func TestSubmitNeedsAScopeOfTheCaller(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	for _, c := range []struct {
		uid                   int
		tenant, subject, tool string
		allowed               bool
	}{
		{0, "initech", "any", queryable, true},
		{shopUID, "acme", "shop", opaque, true},
		{shopUID, "acme", "shop", queryable, false},
		{shopUID, "acme", "Shop", opaque, false},
		{shopUID, "acme", "*", opaque, false},
		{shopUID, "globex", "shop", opaque, false},
		{acmeUID, "acme", "anybody", queryable, true},
		{acmeUID, "globex", "shop", queryable, false},
		{otherUID, "globex", "ops", opaque, true},
		{nobody, "acme", "shop", opaque, false},
	} {
		body := aCase(c.tool, fmt.Sprintf("%d-%s-%s", c.uid, c.subject, c.tool))
		body.Principal = &api.Principal{Tenant: c.tenant, Subject: c.subject}
		_, err := w.as(c.uid).Submit(context.Background(), body, 0)
		if c.allowed {
			if err != nil {
				t.Errorf("uid %d for %s/%s/%s: %v", c.uid, c.tenant, c.subject, c.tool, err)
			}
			continue
		}
		p := refused(t, fmt.Sprintf("uid %d for %s/%s/%s", c.uid, c.tenant, c.subject, c.tool), err, 403, "AUTHORIZATION_DENIED")
		if p.Exit() != 1 {
			t.Errorf("exit %d, want 1", p.Exit())
		}
	}
}

func TestPrincipalMayBeLeftOutWhereThereIsOnlyOne(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	body := aCase(opaque, "order-1")
	body.Principal = nil
	a, err := w.as(shopUID).Submit(context.Background(), body, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := w.as(0).List(context.Background(), api.Filter{})
	if err != nil || len(page.Operations) != 1 || page.Operations[0].Tenant != "acme" || page.Operations[0].Subject != "shop" {
		t.Errorf("listed %+v (%v), want one of acme, shop: %s", page, err, a.StatusRef)
	}
	for _, uid := range []int{0, acmeUID, otherUID, nobody} {
		_, err := w.as(uid).Submit(context.Background(), body, 0)
		wants(t, fmt.Sprintf("uid %d without a principal", uid), err, 422, "INPUT_INVALID")
	}
}

func TestWhatIsNotYoursIsAnsweredAsWhatDoesNotExist(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	ref := w.place(idempotent, "order-1", "delivered")
	missing := "0199c0de-0000-7000-8000-000000000000"
	for _, uid := range []int{otherUID, nobody} {
		client := w.as(uid)
		calls := map[string]func(ref string) error{
			"status":    func(ref string) error { _, err := client.Status(context.Background(), ref, 0); return err },
			"reconcile": func(ref string) error { _, err := client.Reconcile(context.Background(), ref); return err },
			"attempts":  func(ref string) error { _, err := client.Attempts(context.Background(), ref); return err },
			"list": func(ref string) error {
				_, err := client.List(context.Background(), api.Filter{After: ref})
				return err
			},
		}
		for name, call := range calls {
			theirs := refused(t, name, call(ref), 404, "NOT_FOUND")
			if d := cmp.Diff(refused(t, name, call(missing), 404, "NOT_FOUND"), theirs); d != "" {
				t.Errorf("uid %d can tell by %s (-nothing +another's):\n%s", uid, name, d)
			}
		}
		for _, f := range []api.Filter{{}, {Tool: idempotent, Key: "order-1"}, {States: []entry.State{"delivered"}}, {Tool: idempotent, Key: "order-1", Tenant: "acme", Subject: "shop"}} {
			page, err := client.List(context.Background(), f)
			if err != nil || len(page.Operations) != 0 {
				t.Errorf("uid %d lists %+v: %v (%v), want nothing", uid, f, page.Operations, err)
			}
		}
		_, err := client.Find(context.Background(), api.Filter{Tool: idempotent, Key: "order-1"})
		wants(t, "find", err, 404, "NOT_FOUND")
	}
	for _, uid := range []int{0, shopUID, acmeUID} {
		if a, err := w.as(uid).Status(context.Background(), ref, 0); err != nil || a.Code != "OK" {
			t.Errorf("uid %d: got %+v, %v, want OK", uid, a, err)
		}
		if a, err := w.as(uid).Find(context.Background(), api.Filter{Tool: idempotent, Key: "order-1"}); err != nil || a.StatusRef != ref {
			t.Errorf("uid %d finds %+v, %v", uid, a, err)
		}
	}
}

func TestAccessIsCheckedAsItIsNow(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	ref := w.place(idempotent, "order-1", "delivered")
	w.api.Swap(api.NewAccess(config.Operators{}, nil))
	_, err := w.as(shopUID).Status(context.Background(), ref, 0)
	wants(t, "status after the access was taken away", err, 404, "NOT_FOUND")
	_, err = w.as(shopUID).Submit(context.Background(), aCase(idempotent, "order-1"), 0)
	wants(t, "replay after the access was taken away", err, 403, "AUTHORIZATION_DENIED")
}

func TestControlIsForOperators(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	for _, uid := range []int{shopUID, nobody} {
		c := w.as(uid)
		for name, call := range map[string]func() error{
			"refused": func() error { _, err := c.Refused(context.Background(), 0, 0); return err },
			"tools":   func() error { _, err := c.Tools(context.Background()); return err },
			"pause":   func() error { _, err := c.Pause(context.Background(), opaque, ""); return err },
			"resume":  func() error { _, err := c.Resume(context.Background(), opaque); return err },
			"audit":   func() error { _, err := c.Audit(context.Background()); return err },
		} {
			wants(t, fmt.Sprintf("%s by uid %d", name, uid), call(), 403, "AUTHORIZATION_DENIED")
		}
	}
}

// The statements' rule of who sees what is the one that single operations obey.
func TestListsShowWhatMayBeSubmitted(t *testing.T) {
	w := newWorld(t, script{})
	names := []string{"acme", "shop", "*"}
	var all []api.Item
	for _, tenant := range names {
		for _, subject := range names {
			for _, tool := range []string{opaque, idempotent} {
				body := aCase(tool, "k")
				body.Principal = &api.Principal{Tenant: tenant, Subject: subject}
				if _, err := w.as(0).Submit(context.Background(), body, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	page, err := w.as(0).List(context.Background(), api.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	all = page.Operations
	scope := rapid.Custom(func(t *rapid.T) config.Scope {
		return config.Scope{
			Tenant: rapid.SampledFrom(names).Draw(t, "tenant"), Subject: rapid.SampledFrom(names).Draw(t, "subject"),
			Tools: rapid.SampledFrom([][]string{nil, {opaque}, {opaque, idempotent}, {queryable}}).Draw(t, "tools"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		scopes := rapid.SliceOfN(scope, 0, 3).Draw(rt, "scopes")
		w.api.Swap(api.NewAccess(config.Operators{}, []config.Principal{{UID: shopUID, MaySubmit: scopes}}))
		client := w.as(shopUID)
		var want []string
		for _, op := range all {
			if _, err := client.Status(context.Background(), op.StatusRef, 0); err == nil {
				want = append(want, op.StatusRef)
			}
		}
		for _, f := range []api.Filter{{}, {States: []entry.State{"pending", "dead"}}} {
			page, err := client.List(context.Background(), f)
			if err != nil {
				rt.Fatal(err)
			}
			var got []string
			for _, op := range page.Operations {
				got = append(got, op.StatusRef)
			}
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatalf("list %+v and status differ (-status +list):\n%s", f, d)
			}
		}
	})
}

// childEnv tells the test binary to be a client with another uid.
const childEnv = "OUTBOXD_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(childEnv); socket != "" {
		os.Exit(child(socket))
	}
	os.Exit(m.Run())
}

// child submits for the shop and lists what it sees.
func child(socket string) int {
	c := api.NewClient(api.Socket(socket))
	_, err := c.Submit(context.Background(), aCase(opaque, "by-"+os.Getenv("OUTBOXD_TEST_NAME")), 0)
	fmt.Println("submit", codeOf(err))
	page, err := c.List(context.Background(), api.Filter{})
	fmt.Println("list", codeOf(err), len(page.Operations))
	_, err = c.Tools(context.Background())
	fmt.Println("tools", codeOf(err))
	return 0
}

func codeOf(err error) string {
	if err == nil {
		return "ok"
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code
	}
	return err.Error()
}

func TestThePeersUIDAndGroupsDecide(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: only root can be two users")
	}
	const operatorGID = 12900
	w := newWorld(t, script{})
	shops(w)
	reachable(t, w)
	access := api.NewAccess(config.Operators{UIDs: []int{0}, GIDs: []int{operatorGID}}, []config.Principal{
		{Name: "shop", UID: shopUID, MaySubmit: []config.Scope{{Tenant: "acme", Subject: "shop"}}},
	})
	w.api.Swap(access)
	binary := copied(t)
	for _, c := range []struct {
		name   string
		uid    uint32
		groups []uint32
		want   string
	}{
		{"shop", shopUID, nil, "submit ok, list ok 1, tools AUTHORIZATION_DENIED"},
		{"nobody", nobody, nil, "submit AUTHORIZATION_DENIED, list ok 0, tools AUTHORIZATION_DENIED"},
		{"operator", nobody, []uint32{7, operatorGID}, "submit ok, list ok 2, tools ok"},
	} {
		cmd := exec.Command(binary)
		cmd.Env = []string{childEnv + "=" + w.socket, "OUTBOXD_TEST_NAME=" + c.name}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.uid, Groups: c.groups}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var lines []string
		for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
			lines = append(lines, s.Text())
		}
		if got := strings.Join(lines, ", "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// reachable lets other users come to the socket.
func reachable(t *testing.T, w *world) {
	t.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(w.socket), 0o755), os.Chmod(w.socket, 0o666)); err != nil {
		t.Fatal(err)
	}
}

// copied is this test binary where other users can run it.
func copied(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	path := filepath.Join(dir, "client")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}
