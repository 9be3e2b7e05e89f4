package daemon_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/ledger"
)

// patient is a database of a daemon that has stopped.
func patient(t *testing.T) *config.Config {
	t.Helper()
	cfg := settings(t.TempDir())
	must(t, os.Chmod(filepath.Dir(cfg.Database.Path), 0o700))
	_, err := daemon.Init(t.Context(), cfg, daemon.Options{})
	must(t, err)
	return cfg
}

// says is what Doctor finds of one check.
func says(t *testing.T, cfg *config.Config, check string) daemon.Finding {
	t.Helper()
	var found daemon.Finding
	for _, f := range daemon.Doctor(t.Context(), cfg, daemon.Options{}) {
		if f.Check == check && (found.Check == "" || found.Level == daemon.Fine) {
			found = f
		}
		if f.Level != daemon.Fine && f.Check != "clock" && f.Do == "" && f.Check != "database" {
			t.Errorf("%s: %q does not say what to do", f.Check, f.What)
		}
	}
	return found
}

func TestDoctorFindsNothingWrongWithAHealthyDatabase(t *testing.T) {
	cfg := patient(t)
	w := run(t, cfg, daemon.Options{}).ready()
	seen := map[string]bool{}
	for _, f := range daemon.Doctor(t.Context(), cfg, daemon.Options{}) {
		seen[f.Check] = true
		if f.Level == daemon.Fail || f.Level == daemon.Warn && f.Check != "clock" && f.Check != "unit" && f.Check != "space" && f.Check != "file system" {
			t.Errorf("%s: %s, %s", f.Check, f.Level, f.What)
		}
	}
	for _, check := range []string{"directory", "file", "user", "-wal", "-shm", ".lock", "in use", "log", "journal mode", "schema",
		"triggers", "waiting for a person", "file system", "space", "clock", "socket", "unit"} {
		if !seen[check] {
			t.Errorf("%s was not looked at", check)
		}
	}
	must(t, w.end())
}

// statement runs as an application does, which has what it likes in the file.
func statement(t *testing.T, cfg *config.Config, query string) {
	t.Helper()
	l, err := ledger.Open(t.Context(), cfg.Database.Path, ledger.Options{})
	must(t, err)
	must(t, l.Write(t.Context(), func(tx *ledger.Tx) error {
		_, err := tx.Exec(query)
		return err
	}))
	must(t, l.Close())
}

func TestDoctorFinds(t *testing.T) {
	for _, c := range []struct {
		name  string
		harm  func(t *testing.T, cfg *config.Config)
		check string
		level daemon.Level
		what  string // part of it, or of what to do
	}{
		{"file open to others", func(t *testing.T, c *config.Config) { must(t, os.Chmod(c.Database.Path, 0o644)) }, "file", daemon.Fail, "chmod 0600"},
		{"no file", func(t *testing.T, c *config.Config) { must(t, os.Remove(c.Database.Path)) }, "file", daemon.Warn, "is not there"},
		{"no directory", func(t *testing.T, c *config.Config) { c.Database.Path = filepath.Join(c.Database.Path, "x", "y") }, "directory", daemon.Fail, "no directory"},
		{"lock open to others", func(t *testing.T, c *config.Config) { must(t, os.Chmod(c.Database.Path+".lock", 0o604)) }, ".lock", daemon.Fail, "chmod 0600"},
		{"directory open to others", func(t *testing.T, c *config.Config) { must(t, os.Chmod(filepath.Dir(c.Database.Path), 0o707)) }, "directory", daemon.Fail, "o-w"},
		{"directory open to a group", func(t *testing.T, c *config.Config) { must(t, os.Chmod(filepath.Dir(c.Database.Path), 0o770)) }, "directory", daemon.Warn, "application_group"},
		{"directory without setgid", func(t *testing.T, c *config.Config) { c.Database.ApplicationGroup = "4711" }, "directory", daemon.Fail, "chmod 2770"},
		{"file not of the group", func(t *testing.T, c *config.Config) { c.Database.ApplicationGroup = "4711" }, "file", daemon.Fail, "chmod 0660"},
		{"no such group", func(t *testing.T, c *config.Config) { c.Database.ApplicationGroup = "no such" }, "application group", daemon.Fail, "no such"},
		{"garbage", func(t *testing.T, c *config.Config) {
			must(t, os.WriteFile(c.Database.Path, []byte(strings.Repeat("x", 8192)), 0o600))
		}, "database", daemon.Fail, "not a SQLite database"},
		{"older version", func(t *testing.T, c *config.Config) {
			must(t, os.Remove(c.Database.Path))
			older(t, c.Database.Path)
		}, "database", daemon.Warn, "older schema"},
		{"trigger", func(t *testing.T, c *config.Config) {
			statement(t, c, `CREATE TRIGGER stop_it BEFORE DELETE ON outbox_entry BEGIN SELECT 1; END`)
		}, "triggers", daemon.Warn, "stop_it"},
		{"reference", func(t *testing.T, c *config.Config) {
			statement(t, c, `CREATE TABLE shipment (op INTEGER REFERENCES outbox_operation (id))`)
		}, "references", daemon.Warn, "shipment"},
		{"token of the future", func(t *testing.T, c *config.Config) {
			statement(t, c, `UPDATE outbox_meta SET last_token = 4000000000000000`)
		}, "clock and tokens", daemon.Warn, "ahead of the clock"},
		{"restored", func(t *testing.T, c *config.Config) { statement(t, c, `UPDATE outbox_meta SET restored_at = 1`) }, "restored", daemon.Warn, "1970-01-01"},
		{"large log", func(t *testing.T, c *config.Config) {
			must(t, os.WriteFile(c.Database.Path+"-wal", nil, 0o600))
			must(t, os.Truncate(c.Database.Path+"-wal", 65<<20))
		}, "log", daemon.Warn, "65 MiB"},
		{"leftover", func(t *testing.T, c *config.Config) {
			must(t, os.WriteFile(c.Database.Path+".replaced-x", nil, 0o600))
		}, "leftover", daemon.Warn, "replaced-x"},
		{"orphan socket", func(t *testing.T, c *config.Config) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Listen.Socket})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}, "socket", daemon.Warn, "nobody listens"},
		{"no socket", func(t *testing.T, c *config.Config) { must(t, os.WriteFile(c.Listen.Socket, nil, 0o600)) }, "socket", daemon.Fail, "is no socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := patient(t)
			before := says(t, cfg, c.check)
			c.harm(t, cfg)
			f := says(t, cfg, c.check)
			if f.Level != c.level || !strings.Contains(f.What+f.Do, c.what) {
				t.Errorf("%s: %+v, want %s with %q", c.check, f, c.level, c.what)
			}
			if before == f {
				t.Errorf("%s said the same before: %+v", c.check, f)
			}
		})
	}
}

func TestDoctorOfAnotherUsersFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: files of another user: only root makes them")
	}
	cfg := patient(t)
	must(t, os.Chown(cfg.Database.Path, 65534, -1))
	if f := says(t, cfg, "user"); f.Level != daemon.Warn || !strings.Contains(f.What, "run as nobody") {
		t.Errorf("user: %+v", f)
	}
	if f := says(t, cfg, ".lock"); f.Level != daemon.Fail || !strings.Contains(f.Do, "chown 65534") {
		t.Errorf("lock of another user: %+v", f)
	}
}

// A process that reads all the time is named, once the log has grown.
func TestDoctorNamesWhoKeepsTheLog(t *testing.T) {
	cfg := patient(t)
	l, err := ledger.Open(t.Context(), cfg.Database.Path, ledger.Options{})
	must(t, err)
	defer func() { _ = l.Close() }()
	users, err := ledger.Users(cfg.Database.Path)
	must(t, err)
	if len(users) != 1 || users[0].PID != os.Getpid() || users[0].Reading {
		t.Errorf("users of the file: %+v, want this process, which reads nothing", users)
	}
	must(t, l.Read(t.Context(), func(v *ledger.View) error {
		var n int
		if err := v.One(`SELECT count(*) FROM outbox_meta`).Scan(&n); err != nil {
			return err
		}
		users, err = ledger.Users(cfg.Database.Path)
		return err
	}))
	if len(users) != 1 || !users[0].Reading || users[0].Command == "" {
		t.Errorf("users of the file within a read: %+v, want that this process reads", users)
	}
}
