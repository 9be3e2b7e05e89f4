package ledgertest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// recorder is a test that fails quietly and ends when it is told to.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) end() string {
	for _, fn := range r.cleanups {
		fn()
	}
	return strings.Join(r.errors, "\n")
}

func TestEveryTestEndsWithAnAudit(t *testing.T) {
	for name, c := range map[string]struct {
		test func(*recorder, *ledger.Ledger)
		want string // part of what the test is told; "": nothing
	}{
		"clean":         {func(*recorder, *ledger.Ledger) {}, ""},
		"clean, shut":   {func(_ *recorder, l *ledger.Ledger) { l.Close() }, ""},
		"damaged":       {func(r *recorder, l *ledger.Ledger) { damage(r, l) }, "audit: ENTRY_MISSING"},
		"damaged, shut": {func(r *recorder, l *ledger.Ledger) { damage(r, l); l.Close() }, "audit: ENTRY_MISSING"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			l := ledgertest.Open(r)
			reg := ledgertest.Registry(t, ledgertest.Tool("lamp", entry.Local), ledgertest.Tool("gate", entry.Queryable))
			ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", "k"))
			ledgertest.Accept(t, l, reg, ledgertest.Request("gate", "k"))
			c.test(r, l)
			if got := r.end(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("the test was told %q, want %q", got, c.want)
			}
		})
	}
}

func damage(r *recorder, l *ledger.Ledger) {
	ledgertest.Write(r, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`DELETE FROM outbox_entry WHERE operation_id = 1`)
		return err
	})
}
