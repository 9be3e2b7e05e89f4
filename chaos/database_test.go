package chaos_test

import (
	"database/sql"
	"sync"

	_ "modernc.org/sqlite" // another program's SQLite, as far as the daemon can tell
)

// open opens the file as a foreign program would.
func (w *world) open() *sql.DB { return w.openFile("outbox.db") }

func (w *world) openFile(name string) *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path(name)+"?_pragma=busy_timeout(5000)")
	must(w.t, err)
	db.SetMaxOpenConns(1)
	w.t.Cleanup(func() { db.Close() })
	return db
}

// lock holds a lock from a foreign connection until release is called.
func (w *world) lock(begin string) (release func()) {
	w.t.Helper()
	db := w.open()
	_, err := db.Exec(begin)
	must(w.t, err)
	return sync.OnceFunc(func() {
		if _, err := db.Exec(`ROLLBACK`); err != nil {
			w.t.Errorf("release the lock: %v", err)
		}
		if err := db.Close(); err != nil {
			w.t.Errorf("close the foreign connection: %v", err)
		}
	})
}

// count is the answer of a SELECT count(*).
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	db := w.open()
	must(w.t, db.QueryRow(query, args...).Scan(&n))
	must(w.t, db.Close())
	return n
}
