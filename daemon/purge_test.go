package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/ledger"
)

// A daemon purges by itself, by the retention of the present config, and answers
// for what it purged.
func TestADaemonPurgesByItsPresentConfig(t *testing.T) {
	cfg := settings(t.TempDir())
	cfg.Retention.Every = 5 * time.Millisecond
	cfg.Tools = []config.Tool{trueTool(t, cfg)}
	var next atomic.Pointer[config.Config]
	next.Store(cfg)
	w := run(t, cfg, daemon.Options{Load: func() (*config.Config, error) { return next.Load(), nil }}).ready()
	a, err := w.client.Submit(t.Context(), request("true", "k"), patience)
	must(t, err)
	if a.Status != "succeeded" {
		t.Fatalf("the operation is %s", a.Status)
	}
	p, err := w.client.Purge(t.Context())
	if err != nil || p != (api.Purge{}) {
		t.Errorf("a purge before the retention is over removed %+v, %v", p, err)
	}
	short := *cfg
	short.Retention.Delivered = time.Nanosecond
	next.Store(&short)
	_, err = w.client.Reload(t.Context())
	must(t, err)
	w.says("purged", 1)
	_, err = w.client.Submit(t.Context(), request("true", "k"), 0)
	gone, _ := errors.AsType[*api.Problem](err)
	if gone == nil || gone.Code != "ALREADY_PURGED" || gone.Status != 410 || gone.Gate != api.Block {
		t.Errorf("the same request after the purge: %v, want ALREADY_PURGED, 410", err)
	}
	if _, err = w.client.Status(t.Context(), a.StatusRef, 0); err == nil || !strings.Contains(err.Error(), "NOT_FOUND") {
		t.Errorf("status of what was purged: %v, want NOT_FOUND", err)
	}
	must(t, w.end())
}

// trueTool is a program that does nothing, and did it.
func trueTool(t *testing.T, cfg *config.Config) config.Tool {
	t.Helper()
	tool, err := cfg.Tool(config.Tool{Name: "true", Effect: "idempotent", Timeout: 300 * time.Millisecond, Exec: &config.Exec{Argv: []string{"/bin/true"}}})
	must(t, err)
	return tool
}

// older makes a file of the first version.
func older(t *testing.T, path string) {
	t.Helper()
	l, err := ledger.Open(t.Context(), path, ledger.Options{Create: true})
	must(t, err)
	must(t, l.Write(t.Context(), func(tx *ledger.Tx) error {
		for _, stmt := range firstVersion(t, tx) {
			if _, err := tx.Exec(stmt); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, l.Close())
}

// firstVersion is what leads from the present schema to an empty file of the first.
func firstVersion(t *testing.T, tx *ledger.Tx) (stmts []string) {
	t.Helper()
	stmts = append(stmts, `PRAGMA defer_foreign_keys = ON`)
	must(t, tx.Each(func(r *ledger.Row) error {
		var name string
		err := r.Scan(&name)
		stmts = append(stmts, `DROP TABLE `+name)
		return err
	}, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'outbox\_%' ESCAPE '\'`))
	text, err := os.ReadFile(filepath.Join("..", "ledger", "migrations", "0001_live.sql"))
	must(t, err)
	for stmt := range strings.SplitSeq(string(text), ";\n") {
		if strings.TrimSpace(stmt) != "" {
			stmts = append(stmts, stmt)
		}
	}
	return append(stmts, `INSERT INTO outbox_meta (id, schema_version, lineage) VALUES (1, 1, 'old')`)
}

// The service manager is told of each step, with a share of the whole, and asked
// for time before it is ready.
func TestAStartTellsOfTheUpgradeOfTheDatabase(t *testing.T) {
	manager := notified(t)
	cfg := settings(t.TempDir())
	older(t, cfg.Database.Path)
	w := run(t, cfg, daemon.Options{})
	var said []string // heard at once: a socket holds few datagrams
	for !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "READY=1") }) {
		said = append(said, heard(t, manager))
	}
	w.ready()
	all := strings.Join(said, "|")
	if !strings.HasPrefix(all, "STATUS=upgrading the database: version 1 of ") || !strings.Contains(all, ", 0%|EXTEND_TIMEOUT_USEC=30000000|") {
		t.Errorf("the start said %q, want the upgrade and that it takes longer first", said)
	}
	if steps := w.says("upgrading the database", 1); int64(len(steps)) != ledger.SchemaVersion-1 {
		t.Errorf("%d steps logged, want %d", len(steps), ledger.SchemaVersion-1)
	}
	must(t, w.end())
}

func TestOnlyADaemonAndMigrateUpgrade(t *testing.T) {
	cfg := settings(t.TempDir())
	older(t, cfg.Database.Path)
	for _, o := range []daemon.Options{{}, {Create: true}, {ReadOnly: true}} {
		if _, _, err := daemon.Local(t.Context(), cfg, o, nil); !errors.Is(err, ledger.ErrOlder) {
			t.Errorf("a command with %+v: %v, want %v", o, err, ledger.ErrOlder)
		}
	}
	if _, err := daemon.Init(t.Context(), cfg, daemon.Options{}); !errors.Is(err, ledger.ErrOlder) {
		t.Errorf("init: %v, want %v", err, ledger.ErrOlder)
	}
	steps := 0
	m, err := daemon.Migrate(t.Context(), cfg, daemon.Options{}, func(int64, int64) { steps++ })
	if want := (daemon.Made{From: 1, To: ledger.SchemaVersion}); err != nil || m != want || int64(steps) != m.To-1 {
		t.Errorf("migrate: %+v in %d steps, %v; want %+v", m, steps, err, want)
	}
	if m, err := daemon.Init(t.Context(), cfg, daemon.Options{}); err != nil || m.Created {
		t.Errorf("init of a file that is there: %+v, %v", m, err)
	}
}
